"""Spark's own servers for a test: one for Spark Connect, or a cluster with workers on several addresses.

Each ends with its block, and with the process that began it, however that ends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tidegate.local.java import find_java, java_home
from tidegate.local.processes import Supervised, free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
_START_SECONDS = 240.0


@contextmanager
def connect_server(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server of two cores; its log is `folder/server.log`. Gives its URL."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
    }
    main_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [
        *(str(SPARK_CLASS), "org.apache.spark.deploy.SparkSubmit", "--class", main_class),
        *("--master", "local[2]", "--driver-memory", "1g", "--driver-java-options", _QUICK_START),
        *[word for name, value in conf.items() for word in ("--conf", f"{name}={value}")],
        "spark-internal",
    ]
    log = folder / "server.log"
    with Supervised("Spark Connect", command, log, _with_java(environment), grace_s=2) as server:
        server.wait_ready(lambda: _listens(port), _START_SECONDS)
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def cluster(folder: Path, hosts: Sequence[str], environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Spark's own cluster: a worker of one core on each of the addresses, with its files in `work-<host>`.

    Gives the master's URL.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    variables = _with_java(environment) | {"SPARK_DAEMON_MEMORY": "256m"}
    processes = [("Master", "127.0.0.1", ["--port", str(port)])]
    for host in hosts:
        work = ["--cores", "1", "--memory", "512m", "--work-dir", str(folder / f"work-{host}")]
        processes.append(("Worker", host, [*work, url]))
    with ExitStack() as stack:
        for role, host, arguments in processes:
            main_class = f"org.apache.spark.deploy.{role.lower()}.{role}"
            command = [str(SPARK_CLASS), main_class, "--host", host, "--webui-port", "0", *arguments]
            log = folder / f"{role}-{host}.log"
            stack.enter_context(Supervised(role, command, log, variables, grace_s=2))
        yield url


def _with_java(environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "JAVA_HOME": str(java_home(find_java()))}


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except OSError:
        return False
    return True
