"""The shards of a large batch are sent by Spark tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from tests.batch.committed import Committed
from tests.conftest import REPOSITORY
from tests.sinks.kafka.sending import Sending, once
from tidegate.batch import is_sent_in_shards, publish_batch
from tidegate.errors import LakeDamaged
from tidegate.ledger import Plan
from tidegate.spark.java import find_java, java_home
from tidegate_dev.broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]
ROWS = [(str(key), 1) for key in range(20)]


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Sending:
    """A stream that has decided a batch of three files, which is large."""
    monkeypatch.setattr("tidegate.sinks.outbox.SHARD_EMISSIONS", 5)
    monkeypatch.setattr("tidegate.batch.publish.SHARD_EMISSIONS", 5)
    sending = Sending(tmp_path, broker.bootstrap_servers, monkeypatch)
    sending.batches.outbox_files = 3
    sending.batch(1, *ROWS)
    return sending


SUBMITTED = f"""\
import sys
import tidegate.batch.publish
import tidegate.sinks.outbox

tidegate.batch.publish.SHARD_EMISSIONS = tidegate.sinks.outbox.SHARD_EMISSIONS = 5
sys.path.insert(0, {str(REPOSITORY / "spark_jobs")!r})
import publish

sys.exit(publish.main(*sys.argv[1:]))
"""


def is_in_shards(sending: Sending, plan: Plan) -> bool:
    attempt = sending.batches.app.ledger.attempt(plan.stream, plan.seq)
    assert attempt is not None
    return is_sent_in_shards(sending.batches.app, plan, attempt)


def publish(sending: Sending, open_session: Callable[[int], SparkSession]) -> None:
    plan = sending.batches.app.ledger.plan(sending.batches.stream, 1)
    assert plan is not None
    assert is_in_shards(sending, plan)
    publish_batch(sending.batches.app, plan, "test", open_session)


def test_spark_tasks_send_each_shard_once(sending: Sending, spark: SparkSession) -> None:
    opened = []

    def open_session(records: int) -> SparkSession:
        opened.append(records)
        return spark

    for _ in range(2):
        publish(sending, open_session)
    assert sending.sent() == once(*ROWS)
    assert len(opened) == 1


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_spark_tasks_load_shards_into_postgresql(
    mode: str, postgres_url: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sinks.outbox.SHARD_EMISSIONS", 5)
    monkeypatch.setattr("tidegate.batch.publish.SHARD_EMISSIONS", 5)
    batches = Committed(tmp_path, f"  - {{kind: sql, table: visitors, mode: {mode}}}", sql=postgres_url)
    batches.outbox_files = 3
    batches.commit(1, {"first": [], "second": [*ROWS, ("1", None)]})
    attempt = batches.app.ledger.attempt(batches.stream, 1)
    plan = batches.app.ledger.plan(batches.stream, 1)
    assert plan is not None
    assert attempt is not None
    assert is_sent_in_shards(batches.app, plan, attempt)
    opened = []

    def open_session(records: int) -> SparkSession:
        opened.append(records)
        return spark

    for _ in range(2):
        publish_batch(batches.app, plan, "test", open_session)
    deletion = [("1", None)] if mode == "append" else []
    live = ROWS if mode == "append" else [row for row in ROWS if row[0] != "1"]
    query = "SELECT key, m FROM visitors"
    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        stored = Counter(map(tuple, connection.exec_driver_sql(query).all()))
    engine.dispose()
    assert stored == Counter([*live, *deletion])
    assert len(opened) == 1


def test_error_of_a_task_keeps_its_type(sending: Sending, spark: SparkSession) -> None:
    """The next try does not send again what other shards have sent."""
    (damaged, *_) = (sending.batches.folder / "lake").rglob("outbox/_files/0000000001*/*.parquet")
    content = damaged.read_bytes()
    os.truncate(damaged, 100)
    with pytest.raises(LakeDamaged, match=damaged.name):
        publish(sending, lambda _: spark)
    damaged.write_bytes(content)
    publish(sending, lambda _: spark)
    assert sending.sent() == once(*ROWS)


def test_small_batch_needs_no_spark(sending: Sending) -> None:
    sending.batches.publish(1)
    sending.batches.outbox_files = 1
    sending.batch(2, ("a", 1))
    plan = sending.batches.app.ledger.plan(sending.batches.stream, 2)
    assert plan is not None
    assert not is_in_shards(sending, plan)
    assert sending.sent() == once(*ROWS)


@pytest.mark.long
def test_submitted_driver_sends_each_shard_once(sending: Sending, tmp_path: Path) -> None:
    """The task `publish` of a DAG submits the same program; here the bound for large batches is smaller."""
    sending.batches.lease.release()
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    spark_submit = Path(sys.executable).with_name("spark-submit")
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment = os.environ | sending.batches.environment | python
    done = subprocess.run(
        [str(spark_submit), "--master", "local[2]", str(program), "visitors", "1", "run-1"],
        env=environment | {"JAVA_HOME": str(java_home(find_java()))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"batch 1 is published: 20 to kafka:{sending.topic}" in done.stdout
    assert sending.sent() == once(*ROWS)
