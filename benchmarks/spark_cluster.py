"""Spark's own cluster on this machine, with workers on several addresses.

It ends with its block, and with the process that began it, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tidegate.spark.connect import connection_error
from tidegate.spark.java import find_java, java_home
from tidegate_dev.processes import Supervised, free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@contextmanager
def cluster(
    folder: Path,
    hosts: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    memory: str = "512m",
    placed: Callable[[int, list[str]], list[str]] = lambda _, command: command,
) -> Iterator[str]:
    """Spark's own cluster: a worker of one core on each of the addresses, with its files in `work-<host>`.

    `memory` is what a worker has for executors. `placed` gets a worker's number, from 0, and its command, and
    returns the command to run; by default workers take what is free. Gives the master's URL.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    variables = _with_java(environment) | {"SPARK_DAEMON_MEMORY": "256m"}
    processes = [("Master", "127.0.0.1", ["--port", str(port)])]
    for host in hosts:
        work = ["--cores", "1", "--memory", memory, "--work-dir", str(folder / f"work-{host}")]
        processes.append(("Worker", host, [*work, url]))
    with ExitStack() as stack:
        for number, (role, host, arguments) in enumerate(processes):
            main_class = f"org.apache.spark.deploy.{role.lower()}.{role}"
            command = [
                str(SPARK_CLASS),
                main_class,
                "--host",
                host,
                "--webui-port",
                "0",
                *arguments,
            ]
            if role == "Worker":
                command = placed(number - 1, command)
            log = folder / f"{role}-{host}.log"
            process = stack.enter_context(Supervised(role, command, log, variables, grace_s=2))
            if role == "Master":  # a session refuses a master that does not answer yet
                process.wait_ready(lambda: connection_error(url, port) is None)
        yield url


def _with_java(environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "JAVA_HOME": str(java_home(find_java()))}
