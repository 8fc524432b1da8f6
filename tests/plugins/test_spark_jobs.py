"""What a script of `spark_jobs` comes to in Airflow: done, a retry, a failure, or to wait (no try)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import compute, publish

from tests.batch.committed import Committed
from tests.conftest import REPOSITORY
from tidegate.errors import BufferFull
from tidegate.spark.java import archive_path, find_java, java_home

pytestmark = pytest.mark.airflow

SUBMITTED = {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}}
ROWS: dict[str, list[tuple[str, int | None]]] = {"first": [("1", 10)]}
SubmitStub = Callable[[int], Path]
EXIT_CODES = pytest.mark.parametrize(
    ("exit_code", "outcome"),
    [(1, "AirflowException"), (2, "AirflowFailException"), (3, "AirflowRescheduleException")],
)


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """A batch that run-1 has planned; nobody has computed it, and nobody holds the lease."""
    committed = Committed(tmp_path, "  - {kind: table}", kafka="127.0.0.1:1")
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    plan = committed.compute(1, ROWS)
    committed.lease.drop_plan()
    committed.lease.add_plan(plan)
    committed.lease.release()
    return committed


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SubmitStub:
    """A `spark-submit` that only ends with an exit code; the result is a file that is there once it ran,
    with the options of its JVM.
    """

    def install(exit_code: int) -> Path:
        program, ran = tmp_path / "bin" / "spark-submit", tmp_path / "ran"
        program.parent.mkdir()
        program.write_text(
            f"#!/bin/sh\necho $SPARK_SUBMIT_OPTS > {ran}\nenv > {ran}.environment\nexit {exit_code}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://master:7077")
        return ran

    return install


def execute(*arguments: str, application: str = "compute.py") -> Any:
    from tidegate_airflow.operators import ComputeOperator

    job = ComputeOperator(
        task_id="compute",
        application=application,
        application_args=["visitors", "1", *arguments],
        conn_id="spark_default",
        name="tidegate-visitors-g1",
        durable=False,
    )
    return job.execute({})


def outcome_of(*arguments: str) -> str:
    """The name of what Airflow gets."""
    from airflow.sdk.exceptions import AirflowException

    with pytest.raises(AirflowException) as raised:
        execute(*arguments)
    return type(raised.value).__name__


def test_exit_code_0_is_done(batches: Committed, spark_submit: SubmitStub) -> None:
    ran = spark_submit(0)
    execute("run-1")
    assert ran.exists()


def test_spark_submit_gets_source_settings_but_no_sinks(
    batches: Committed, spark_submit: SubmitStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = {"conn_type": "tidegate_kafka", "host": "source", "extra": {"client.id": "c"}}
    monkeypatch.setenv("AIRFLOW_CONN_TIDEGATE_KAFKA", json.dumps(kafka))
    monkeypatch.setenv("AIRFLOW_CONN_TIDEGATE_SQL", '{"conn_type": "sqlite", "host": "/sink.db"}')
    ran = spark_submit(0)
    execute("run-1")
    lines = Path(f"{ran}.environment").read_text().splitlines()
    (source,) = [line for line in lines if line.startswith("TIDEGATE_KAFKA")]
    assert json.loads(source.partition("=")[2]) == {"client.id": "c", "bootstrap.servers": "source:9092"}
    assert [line for line in lines if line.startswith("TIDEGATE_SQL")] == []
    assert os.environ["TIDEGATE_KAFKA"] == "127.0.0.1:1"


@EXIT_CODES
def test_exit_code_separates_retry_failure_and_waiting(
    batches: Committed, spark_submit: SubmitStub, exit_code: int, outcome: str
) -> None:
    ran = spark_submit(exit_code)
    assert outcome_of("run-1") == outcome
    assert ran.exists()


def test_compute_exits_waiting_if_another_run_leases(
    batches: Committed, capsys: pytest.CaptureFixture[str]
) -> None:
    batches.app.ledger.acquire(batches.stream, "run-2")
    assert compute.main("visitors", "1", "run-1") == 3
    assert "visitors/1 is being worked on by run-2" in capsys.readouterr().err


def test_lease_lost_during_spark_start_makes_task_wait(
    batches: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a real spark-submit, which passes the script's exit code on."""
    from airflow.sdk.exceptions import AirflowRescheduleException

    from tidegate_airflow import tasks

    java = find_java()
    for name, value in {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(SUBMITTED),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "JAVA_HOME": str(java_home(java)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        tasks, "computed_before", lambda *_: batches.app.ledger.acquire(batches.stream, "run-2") and None
    )
    with pytest.raises(AirflowRescheduleException):
        execute("run-1", application=str(REPOSITORY / "spark_jobs" / "compute.py"))


def test_compute_waits_for_lease_before_starting_spark(batches: Committed, spark_submit: SubmitStub) -> None:
    ran = spark_submit(0)
    lease = batches.app.ledger.acquire(batches.stream, "run-2")
    assert outcome_of("run-1") == "AirflowRescheduleException"
    assert not ran.exists()
    lease.release()
    execute("run-1")
    assert ran.exists()


def test_compute_continues_under_its_own_lease(batches: Committed, spark_submit: SubmitStub) -> None:
    ran = spark_submit(0)
    batches.app.ledger.acquire(batches.stream, "run-1")
    execute("run-1")
    assert ran.exists()


def test_computed_batch_needs_no_lease_or_spark(batches: Committed, spark_submit: SubmitStub) -> None:
    ran = spark_submit(0)
    batches.app.ledger.acquire(batches.stream, "test").drop_plan()
    batches.compute(1, ROWS)
    batches.lease.release()
    batches.app.ledger.acquire(batches.stream, "run-2")
    assert execute("run-1") == (
        f"batch 1 was computed before: {batches.attempt_name(1)}; nothing is computed again"
    )
    assert not ran.exists()


@pytest.fixture
def large(batches: Committed, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """The batch is decided, and counts as large."""
    batches.app.ledger.acquire(batches.stream, "test").drop_plan()
    batches.commit(1, ROWS)
    batches.lease.release()
    monkeypatch.setattr("tidegate.batch.is_sent_in_shards", lambda *_: True)
    return batches


def published() -> str:
    from tidegate_airflow import tasks

    arguments = {"conn_id": "spark_default", "name": "tidegate-visitors-g1", "driver_memory": "1g"}
    return tasks.publish("visitors", 1, "run-1", arguments)


def test_large_batch_is_published_by_spark_submit(large: Committed, spark_submit: SubmitStub) -> None:
    ran = spark_submit(0)
    published()
    assert ran.exists()


def test_published_large_batch_needs_no_spark(large: Committed, spark_submit: SubmitStub) -> None:
    large.publish(1)
    ran = spark_submit(0)
    assert "published before" in published()
    assert not ran.exists()


@EXIT_CODES
def test_publishing_driver_decides_by_exit_code(
    large: Committed, spark_submit: SubmitStub, exit_code: int, outcome: str
) -> None:
    from airflow.sdk.exceptions import AirflowException

    spark_submit(exit_code)
    with pytest.raises(AirflowException) as raised:
        published()
    assert type(raised.value).__name__ == outcome


def test_publishing_driver_publishes_the_batch(large: Committed, capsys: pytest.CaptureFixture[str]) -> None:
    """Its session opens only if there are shards to send: this batch has none."""
    assert publish.main("visitors", "1", "run-1") == 0
    assert "batch 1 is published" in capsys.readouterr().out
    large.app.ledger.acquire(large.stream, "run-2")
    assert publish.main("visitors", "1", "run-1") == 0


def test_permanent_driver_failure_is_reported_from_ledger(
    batches: Committed, spark_submit: SubmitStub
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    spark_submit(2)
    with pytest.raises(AirflowFailException, match="begins with `tidegate:`"):
        execute("run-1")
    lease = batches.app.ledger.acquire(batches.stream, "run-1")
    lease.note_failure(1, "compute", BufferFull("The buffer of first is full", "Raise its bound."))
    lease.release()
    message = (
        "^Batch 1 of visitors/1 failed in compute: BufferFull: The buffer of first is full. Raise its bound.$"
    )
    with pytest.raises(AirflowFailException, match=message):
        execute("run-1")


def test_compute_jvm_starts_from_the_class_archive(
    batches: Committed, spark_submit: SubmitStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    ran = spark_submit(0)
    java = ran.parent / "bin" / "java"
    java.write_text("")
    java.chmod(0o755)
    archive = archive_path(java)
    archive.parent.mkdir(parents=True)
    archive.write_text("")
    execute("run-1")
    options = ran.read_text().split()
    assert (options[0], options[-1]) == (f"-XX:SharedArchiveFile={archive}", "-Xmx1g")
