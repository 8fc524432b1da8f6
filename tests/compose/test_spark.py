"""The stack's Spark cluster as plain processes: its commands, settings and probes, on free ports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compose.model import environment_of, filled, resolved
from tidegate.local.java import find_java, java_home
from tidegate.local.processes import Supervised, free_port

_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
FILE = resolved(filled())
SERVICES = FILE["services"]


@dataclass(frozen=True)
class Cluster:
    """The stack's Spark cluster on this machine: its environment, and the words to use for container's."""

    environment: Mapping[str, str]
    words: Mapping[str, str]

    def here(self, value: str) -> str:
        """A text of the file with this machine's addresses and folders."""
        for theirs, ours in self.words.items():
            value = value.replace(theirs, ours)
        return value

    def command(self, service: str) -> list[str]:
        return [self.here(word) for word in SERVICES[service]["command"]]

    def is_healthy(self, service: str) -> bool:
        test = [self.here(word) for word in SERVICES[service]["healthcheck"]["test"][1:]]
        return subprocess.run(test, env=self.environment, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Master and worker, by the stack's commands, found healthy by the stack's probes."""
    folder = tmp_path_factory.mktemp("spark")
    ports = {port: str(free_port()) for port in ("7077", "8090", "8091")}
    names = dict.fromkeys(("spark-master", "airflow-scheduler", "localhost"), "127.0.0.1")
    found = Cluster(
        {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
            "PATH": _PATH,
            "JAVA_HOME": str(java_home(find_java())),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",  # the worker's own address; in its container it is the only one
            "SPARK_WORKER_CORES": environment_of(SERVICES["spark-worker"])["SPARK_WORKER_CORES"],
            "SPARK_WORKER_MEMORY": environment_of(SERVICES["spark-worker"])["SPARK_WORKER_MEMORY"],
        },
        {**names, **ports, "/var/lib/spark/work": str(folder / "work")},
    )
    defaults = found.here(FILE["configs"]["spark-defaults"]["content"])
    (folder / "spark-defaults.conf").write_text(defaults)
    with ExitStack() as running:
        for service in ("spark-master", "spark-worker"):
            process = Supervised(
                service, found.command(service), folder / f"{service}.log", found.environment
            )
            running.enter_context(process)
            process.wait_ready(lambda service=service: found.is_healthy(service), 90)  # type: ignore[misc]
        yield found


# One frame as a batch has them: read by Python tasks, and mapped by others.
_JOB = """
import os
import pyarrow as pa
from tidegate.engine.arrow_source import frame_of
from tidegate.engine.session import open_session

SCHEMA = pa.schema([("folder", pa.string())])

def read():
    import tidegate.engine.source
    yield pa.RecordBatch.from_pydict({"folder": [os.getcwd()] * 2}, schema=SCHEMA)

def decide(batches):
    import tidegate.engine.kernel_task, tidegate.engine.written
    yield from batches

session = open_session()
rows = frame_of(session, SCHEMA, [read] * 4).mapInArrow(decide, "folder string").collect()
conf = session.sparkContext.getConf()
print("BOUND", conf.get("spark.driver.bindAddress"), "MASTER", session.sparkContext.master)
print("RAN IN", sorted({row.folder for row in rows}), len(rows))
"""


@pytest.mark.spark
def test_executors_reach_the_driver_and_have_all_that_a_batch_imports(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    connection = json.loads(environment_of(SERVICES["airflow-scheduler"])["AIRFLOW_CONN_SPARK_DEFAULT"])
    master = cluster.here(f"{connection['host']}:{connection['port']}")
    command = ["spark-submit", "--master", master, "--deploy-mode", connection["extra"]["deploy-mode"]]
    # as on the driver's side of the stack, where SPARK_LOCAL_IP is not set
    variables = {name: value for name, value in cluster.environment.items() if name != "SPARK_LOCAL_IP"}
    found = subprocess.run(
        [*command, str(job)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert f"BOUND 0.0.0.0 MASTER {master}" in found.stdout
    ran = re.search(r"RAN IN \['(\S+)'\] 8", found.stdout)
    assert ran is not None
    assert ran[1].startswith(cluster.here("/var/lib/spark/work"))
