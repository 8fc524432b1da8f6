"""The stack's Spark cluster as plain processes: its commands, settings and probes, on free ports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.compose.model import environment_of, filled, resolved
from tidegate.spark.java import find_java, java_home
from tidegate_dev.processes import Supervised, free_port

_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
SERVICES = resolved(filled())["services"]
SPARK = ("spark-master", "spark-worker", "spark-connect")


@dataclass(frozen=True)
class Cluster:
    """The stack's Spark on this machine: its environment, and the words to use for the containers'."""

    environment: Mapping[str, str]
    words: Mapping[str, str]
    folder: Path

    def here(self, value: str) -> str:
        """A text of the file with this machine's addresses and folders."""
        for theirs, ours in self.words.items():
            value = value.replace(theirs, ours)
        return value

    def command(self, service: str) -> list[str]:
        return [self.here(word) for word in SERVICES[service]["command"]]

    def variables(self, service: str) -> dict[str, str]:
        return {**self.environment, **environment_of(SERVICES[service])}

    def is_healthy(self, service: str) -> bool:
        test = [self.here(word) for word in SERVICES[service]["healthcheck"]["test"][1:]]
        return subprocess.run(test, env=self.environment, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Master, worker and Connect server, by the stack's commands, found healthy by the stack's probes."""
    folder = tmp_path_factory.mktemp("spark")
    ports = {port: str(free_port()) for port in ("7077", "8090", "8091", "15002")}
    names = dict.fromkeys(("spark-master", "spark-connect", "localhost"), "127.0.0.1")
    containers = Cluster(
        {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
            "PATH": _PATH,
            "JAVA_HOME": str(java_home(find_java())),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",  # the worker's own address; in its container it is the only one
        },
        {**names, **ports, "/var/lib/spark/work": str(folder / "work")},
        folder,
    )
    with ExitStack() as running:
        for service in SPARK:
            process = Supervised(
                service, containers.command(service), folder / f"{service}.log", containers.variables(service)
            )
            running.enter_context(process)
            process.wait_ready(lambda service=service: containers.is_healthy(service))  # type: ignore[misc]
        yield containers


# One frame as a batch has them: read by Python tasks, and mapped by others.
_JOB = """
import os
import pyarrow as pa
from tidegate.spark.source import frame_of
from tidegate.spark.session import open_session

SCHEMA = pa.schema([("folder", pa.string())])

def read():
    import tidegate.spark.source
    yield pa.RecordBatch.from_pydict({"folder": [os.getcwd()] * 2}, schema=SCHEMA)

def decide(batches):
    import tidegate.spark.kernel_task, tidegate.spark.written
    yield from batches

session = open_session(os.environ["TIDEGATE_SPARK_MASTER"], name="a stream")
rows = frame_of(session, SCHEMA, [read] * 4).mapInArrow(decide, "folder string").collect()
print("BOUND", session.conf.get("spark.driver.bindAddress"), "MASTER", session.conf.get("spark.master"))
print("RAN IN", sorted({row.folder for row in rows}), len(rows))
"""


@pytest.mark.spark
@pytest.mark.long
def test_executors_have_all_imports_of_a_batch(cluster: Cluster, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    server = cluster.here(environment_of(SERVICES["airflow-scheduler"])["TIDEGATE_SPARK_MASTER"])
    done = subprocess.run(
        [sys.executable, str(job)],
        env={**cluster.environment, "TIDEGATE_SPARK_MASTER": server},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"BOUND 0.0.0.0 MASTER {cluster.here('spark://spark-master:7077')}" in done.stdout
    ran = re.search(r"RAN IN \['(\S+)'\] 8", done.stdout)
    assert ran is not None
    assert ran[1].startswith(cluster.here("/var/lib/spark/work"))


@pytest.mark.spark
@pytest.mark.long
def test_server_gets_an_executor_per_worker(cluster: Cluster) -> None:
    words = {**cluster.words, "8091": str(free_port()), "/var/lib/spark/work": str(cluster.folder / "second")}
    second = replace(cluster, words=words)
    log = cluster.folder / "second.log"
    worker = Supervised("second", second.command("spark-worker"), log, second.variables("spark-worker"))
    cores = int(environment_of(SERVICES["spark-worker"])["SPARK_WORKER_CORES"])

    def has_all_cores() -> bool:
        with urlopen(f"http://127.0.0.1:{cluster.words['8090']}/json/", timeout=5) as answer:
            master = json.load(answer)
        return [app["cores"] for app in master["activeapps"]] == [2 * cores]

    with worker:
        worker.wait_ready(has_all_cores)
        assert second.is_healthy("spark-worker")
