"""A home for one benchmark: temporary, with the installed jars, apart from whatever else is set here."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafka.admin import NewTopic

from kafka import KafkaAdminClient
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.signals import terminate
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.stack import environment

PROJECT = Path(__file__).resolve().parent.parent
PIPELINE, SOURCE, SINK = "availability", "stock", "availability"
_BARE = """\
pipeline: {pipeline}
generation: {generation}
source:
  topics: [{source}]
  format: json
  columns: "storeId string, id bigint, quantity int"
  key: [storeId, id]
  max_records: {most}
stages:
  - {stage}
sinks:
  - {{kind: table}}
"""
_ALL = 1_000_000_000
STEPS = ("plan", "compute", "validate", "commit", "publish")


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A TIDEGATE_HOME that is removed at the end. Inside, the environment leads here and nowhere else.

    SIGTERM ends the block in good order, as Ctrl-C does.
    """
    installed = Path(os.environ.get("TIDEGATE_HOME") or PROJECT / ".tidegate").absolute()
    before = dict(os.environ)
    handler = signal.signal(signal.SIGTERM, terminate)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder:
            home = Path(folder)
            (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
            (home / "pipelines").mkdir()
            (home / "work").mkdir()  # where programs run, and leave what they leave
            # An installed package has its bytecode: to compile it in each turn would be measured, too.
            forgotten = ("TIDEGATE_", "PYTHONDONTWRITEBYTECODE")
            for name in [name for name in os.environ if name.startswith(forgotten)]:
                del os.environ[name]
            os.environ["TIDEGATE_HOME"] = str(home)
            os.environ["TIDEGATE_LEDGER"] = ledger_url(home)
            os.environ["TIDEGATE_PIPELINES"] = str(home / "pipelines")
            os.environ["TIDEGATE_EXPECTATIONS"] = str(PROJECT / "include" / "expectations")
            yield home
    finally:
        signal.signal(signal.SIGTERM, handler)
        os.environ.clear()
        os.environ.update(before)


def ledger_url(home: Path) -> str:
    return f"sqlite:///{home / 'ledger.db'}"


def write_pipeline(
    home: Path,
    generation: int = 1,
    source: str = SOURCE,
    sink: str = SINK,
    pipeline: str = PIPELINE,
    most: int = _ALL,
) -> None:
    """A pipeline, by its file's stem, between these topics, unscheduled, `most` records a batch."""
    text = _file(pipeline).read_text()
    lines = {  # not by a YAML parser: PyYAML reads the name `on` as true
        "generation": (":.*$", f": {generation}"),
        "schedule": (":.*$", ": null"),
        "max_records": (":.*$", f": {most}"),
        "topics": (r": \[.*\]$", f": [{source}]"),
        "- {kind: kafka, topic": (": [^,}]+", f": {sink}"),
    }
    for name, (before, after) in lines.items():
        text, changed = re.subn(rf"(?m)^( *{re.escape(name)}){before}", rf"\1{after}", text)
        assert changed == 1, f"{pipeline}.yaml has {changed} lines with {name}"
    (home / "pipelines" / f"{pipeline}.yaml").write_text(text)


def _file(pipeline: str) -> Path:
    """A sample, or one that is there for benchmarks only."""
    folders = (PROJECT / "include" / "pipelines", Path(__file__).with_name("pipelines"))
    return next(file for folder in folders if (file := folder / f"{pipeline}.yaml").exists())


def write_stage(home: Path, generation: int, stage: str) -> None:
    """The sample's source with another stage (YAML in flow style), into a table."""
    path = home / "pipelines" / f"{PIPELINE}.yaml"
    path.write_text(
        _BARE.format(pipeline=PIPELINE, generation=generation, source=SOURCE, stage=stage, most=_ALL)
    )


def write_project(home: Path, *dag_files: Path) -> Path:
    """A checkout's folders, with the DAGs of pipelines, those of these files, and no others."""
    project = home / "project"
    (project / "dags").mkdir(parents=True)
    for file in (PROJECT / "dags" / "pipelines.py", *dag_files):
        (project / "dags" / file.name).symlink_to(file)
    (project / "plugins").symlink_to(PROJECT / "plugins", target_is_directory=True)
    return project


def create_topics(servers: str, partitions: int, *topics: str) -> None:
    """Topics, empty."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
    finally:
        admin.close()


def topic_ends(servers: str, topic: str) -> dict[int, int]:
    """Partition of a topic -> the offset after its last record."""
    with KafkaLog(KafkaConfig.parse(servers)) as log:
        return dict(log.view(topic).ends)


class Place(NamedTuple):
    """A home with a broker, and the environment of programs there."""

    home: Path
    env: dict[str, str]

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self.env["TIDEGATE_KAFKA"]


@contextmanager
def running(partitions: int, master: str) -> Iterator[Place]:
    """A place with the sample pipeline and its topics."""
    with temporary_home() as home:
        write_pipeline(home)
        with KafkaBroker(home) as broker:
            create_topics(broker.bootstrap_servers, partitions, SOURCE, SINK)
            settings = environment(home, PROJECT, broker.bootstrap_servers)
            yield Place(home, {**os.environ, **settings, "TIDEGATE_SPARK_MASTER": master})
