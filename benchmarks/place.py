"""A home for one benchmark: temporary, with the installed jars, apart from whatever else is set here."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from tidegate.broker import KafkaLog
from tidegate.broker.config import KafkaConfig
from tidegate.local.broker import KafkaBroker
from tidegate.local.stack import environment

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
STEPS = ("plan", "compute", "validate", "commit", "publish")


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A TIDEGATE_HOME that is removed at the end. Inside, the environment leads here and nowhere else.

    SIGTERM ends the block in good order, as Ctrl-C does.
    """
    installed = Path(os.environ.get("TIDEGATE_HOME") or PROJECT / ".tidegate").absolute()
    before = dict(os.environ)
    handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder:
            home = Path(folder)
            (home / "jars").symlink_to(installed / "jars", target_is_directory=True)
            (home / "pipelines").mkdir()
            (home / "work").mkdir()  # where programs run, and leave what they leave
            for name in [name for name in os.environ if name.startswith("TIDEGATE_")]:
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


def write_pipeline(home: Path, generation: int = 1) -> None:
    """The sample pipeline, unscheduled and without a limit on a batch, as this generation."""
    text = (PROJECT / "include" / "pipelines" / f"{PIPELINE}.yaml").read_text()
    for name, value in (("generation", generation), ("schedule", "null"), ("max_records", 1_000_000_000)):
        text, found = re.subn(rf"(?m)^( *{name}:).*$", rf"\1 {value}", text)
        assert found == 1, f"{PIPELINE}.yaml has {found} lines with {name}"
    (home / "pipelines" / f"{PIPELINE}.yaml").write_text(text)


def write_stage(home: Path, generation: int, stage: str, most: int = 1_000_000_000) -> None:
    """The sample's source with another stage (YAML in flow style), into a table. `most` records a batch."""
    path = home / "pipelines" / f"{PIPELINE}.yaml"
    path.write_text(
        _BARE.format(pipeline=PIPELINE, generation=generation, source=SOURCE, stage=stage, most=most)
    )


def create_topics(servers: str, partitions: int) -> None:
    """The pipeline's input and output topic."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(name, partitions, 1) for name in (SOURCE, SINK)])
    finally:
        admin.close()


def source_ends(servers: str) -> dict[int, int]:
    """Partition of the input topic -> the offset after its last record."""
    with KafkaLog(KafkaConfig.parse(servers)) as log:
        return dict(log.view(SOURCE).stable_ends)


@contextmanager
def running(partitions: int, master: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """A home with the sample pipeline, a broker and the topics; and the environment of programs there."""
    with temporary_home() as home:
        write_pipeline(home)
        with KafkaBroker(home) as broker:
            create_topics(broker.bootstrap_servers, partitions)
            settings = environment(home, PROJECT, broker.bootstrap_servers)
            yield home, {**os.environ, **settings, "TIDEGATE_SPARK_MASTER": master}
