"""Whole batches in each kind of session: a driver's own, one of a Spark Connect server, a cluster's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from benchmarks.spark_cluster import cluster

from tests.conftest import REPOSITORY
from tests.install.built import build
from tests.secured import SecuredBroker, with_all_secrets
from tests.sessions import program, whole_batch
from tests.sessions.program import Given
from tests.sessions.submitting import Submission, SubmittingWorld
from tidegate.spark.java import find_java, java_home
from tidegate_dev.processes import free_port
from tidegate_dev.spark_server import SparkServer

HOSTS = ("127.0.0.2", "127.0.0.3")
_LOG = """\
rootLogger.level = INFO
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Ran:
    """The folder of a program, with its results."""

    folder: Path

    @cached_property
    def results(self) -> dict[str, Any]:
        """Return the results of the batches, as the program wrote them."""
        results: dict[str, Any] = json.loads((self.folder / "results.json").read_text())
        return results

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """Spark's event log."""
        logs = [path for path in (self.folder / "events").rglob("events*") if path.is_file()]
        return [json.loads(line) for log in logs for line in log.open()]


@dataclass(frozen=True)
class Kind:
    """A kind of session: the folder of its program, and the environment of its processes."""

    folder: Path
    broker: SecuredBroker

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment, with the event log, the page and the logs of Spark switched on."""
        return {
            **os.environ,
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "PYSPARK_PYTHON": sys.executable,
        } | more

    def environment_with_wheel(self, **more: str) -> dict[str, str]:
        """Return the environment for workers whose Python has tidegate as its wheel."""
        return self.environment(PYSPARK_PYTHON=str(python_with_wheel(self.folder)), **more)

    def configure(self, page: int, **conf: str) -> None:
        """Write what Spark's processes read."""
        (self.folder / "conf").mkdir(parents=True)
        (self.folder / "events").mkdir()
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (self.folder / "events").as_uri(),
            "spark.ui.enabled": "true",
            "spark.ui.port": str(page),
            "spark.executor.memory": "512m",
            "spark.log.level": "INFO",
        } | conf
        text = "".join(f"{name} {value}\n" for name, value in conf.items())
        (self.folder / "conf" / "spark-defaults.conf").write_text(text)
        (self.folder / "conf" / "log4j2.properties").write_text(_LOG)

    def run(self, master: str, page: int, environment: Mapping[str, str]) -> Ran:
        """The program, to its end; its log is `driver.log`."""
        given = self.folder / "given.json"
        page_url, kafka = f"http://127.0.0.1:{page}", json.dumps(with_all_secrets(self.broker))
        Given(self.broker.bootstrap_servers, kafka, str(self.folder), master, page_url).write(given)
        (self.folder / "world").mkdir()
        with (self.folder / "driver.log").open("w") as log:
            done = subprocess.run(
                [sys.executable, "-m", program.__name__, str(given)],
                cwd=REPOSITORY,
                env=environment,
                stdout=log,
                stderr=log,
                timeout=1_800,
                check=False,
            )
        assert done.returncode == 0, (self.folder / "driver.log").read_text()[-4000:]
        return Ran(self.folder)


@pytest.fixture(scope="package")
def local(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run in a JVM of the driver's own."""
    kind = Kind(tmp_path_factory.mktemp("local"), secured)
    page = free_port()
    kind.configure(page)
    return kind.run("local[*]", page, kind.environment())


@pytest.fixture(scope="package")
def connect(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run in a server's session."""
    kind = Kind(tmp_path_factory.mktemp("connect"), secured)
    page = free_port()
    kind.configure(page)
    spark = {"spark.ui.enabled": "true", "spark.log.level": "INFO"}
    with SparkServer(kind.folder, conf=spark, environment=kind.environment()) as server:
        return kind.run(server.url, page, kind.environment())


@pytest.fixture(scope="package")
def on_cluster(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run on a cluster of two workers with an address each, whose Python has tidegate's wheel."""
    kind = Kind(tmp_path_factory.mktemp("cluster"), secured)
    page = free_port()
    kind.configure(page)
    environment = kind.environment_with_wheel()
    with cluster(kind.folder, HOSTS, environment) as master:
        return kind.run(master, page, environment)


@pytest.fixture(scope="package")
def connect_on_cluster(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run in the session of a server whose tasks run on such a cluster."""
    kind = Kind(tmp_path_factory.mktemp("connect-cluster"), secured)
    page = free_port()
    kind.configure(page)
    environment = kind.environment_with_wheel()
    with cluster(kind.folder, HOSTS, environment) as master:
        spark = {"spark.master": master, "spark.ui.enabled": "true", "spark.log.level": "INFO"}
        with SparkServer(kind.folder, conf=spark, environment=environment) as server:
            return kind.run(server.url, page, environment)


@pytest.fixture(scope="package")
def submitted(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run by spark-submit on such a cluster. The folder has the batches' results and Spark's event log
    only.
    """
    kind = Kind(tmp_path_factory.mktemp("submitted"), secured)
    kind.configure(free_port(), **{"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
    environment = kind.environment_with_wheel(JAVA_HOME=str(java_home(find_java())))
    (kind.folder / "world").mkdir()
    with cluster(kind.folder, HOSTS, environment) as master:
        submission = Submission(master, environment, kind.folder / "driver.log")
        world = SubmittingWorld(secured.bootstrap_servers, kind.folder / "world", submission=submission)
        results = whole_batch.compute(world, program.PLANTED)
    (kind.folder / "results.json").write_text(json.dumps(results))
    return Ran(kind.folder)


def python_with_wheel(folder: Path) -> Path:
    """An interpreter that has tidegate as its wheel, and the packages that it needs from here."""
    home = folder / "python"
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run(
        [*pip, "--no-deps", "--no-index", "--target", str(site), str(build(folder).wheel)], check=True
    )
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    return home / "bin" / "python"
