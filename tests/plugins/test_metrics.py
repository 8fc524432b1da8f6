"""Airflow's metrics: what StatsD, with tags and without, and OpenTelemetry get of batches and failures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from gzip import decompress as gunzip
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from kafka import KafkaProducer
from tests.batch.committed import Committed
from tests.conftest import REPOSITORY
from tests.faults.history import create_topics
from tests.plugins.runs import CREATED, SUFFIX
from tests.plugins.statsd import StatsD, listening
from tests.web import serving
from tidegate.errors import BrokerUnavailable, BufferFull, LedgerUnavailable
from tidegate.ledger import OffsetRange
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.airflow

WITH_TAGS = {"AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True"}


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsD]:
    """One that gets names with tags."""
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    with listening() as statsd:
        for name, value in (statsd.settings | WITH_TAGS).items():
            monkeypatch.setenv(name, value)
        stats.initialize(factory=lambda: get_stats_factory()(), export_legacy_names=False)
        yield statsd
    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """A committed batch, whose second stage holds four keys back."""
    committed = Committed(tmp_path, "  - {kind: sql, table: seconds}", f"sqlite:///{tmp_path}/sink.db")
    committed.run_suffix = SUFFIX
    committed.commit(1, {"first": [], "second": [("1", 11)]})
    committed.lease.set_metrics(1, "second", {"emitted": 1.0, "suppression-buffer-records": 4.0})
    committed.lease.set_metrics(1, "", {"lag": 7.0})
    committed.lease.release()
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    return committed


def named(metric: str, stage: str = "", **more: str) -> str:
    tags = {"pipeline": "visitors", "generation": "1", "stage": stage, **more}
    return ",".join([f"airflow.tidegate.{metric}", *(f"{tag}={text}" for tag, text in tags.items() if text)])


def test_publishing_sends_all_metrics_of_the_batch(committed: Committed, statsd: StatsD) -> None:
    from tidegate_airflow import tasks

    tasks.publish("visitors", 1, f"run-1{SUFFIX}", {})
    sent = statsd.metrics()
    assert sent[named("emitted", "second")] == "1.0|g"
    assert sent[named("suppression-buffer-records", "second")] == "4.0|g"
    assert sent[named("lag")] == "7.0|g"
    assert named("seconds.publish") in sent


def test_statsd_without_tags_gets_them_in_names(
    committed: Committed, statsd: StatsD, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow import tasks

    monkeypatch.delenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED")
    tasks.publish("visitors", 1, f"run-1{SUFFIX}", {})
    sent = statsd.metrics()
    assert sent["airflow.tidegate.visitors.1.second.emitted"] == "1.0|g"
    assert sent["airflow.tidegate.visitors.1.lag"] == "7.0|g"


def fail(error: BaseException | None, run_id: str, task_id: str = "compute") -> None:
    """Report a failed try of a task, as Airflow does."""
    from tidegate_airflow.failures import measure_failure

    context = {
        "exception": error,
        "dag_run": SimpleNamespace(run_id=run_id, run_after=CREATED),
        "task_instance": SimpleNamespace(task_id=task_id),
    }
    measure_failure(context, "visitors", 1)


def test_failed_try_counts_cause_age_and_buffers(committed: Committed, statsd: StatsD) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    committed.compute(2, {"first": []}, used=3)
    committed.lease.set_metrics(2, "first", {"used": 3.0})
    mapped = AirflowFailException("mapped")
    mapped.__cause__ = BufferFull("The buffer is full")
    fail(mapped, "run-2")
    fail(mapped, "run-2")
    sent = statsd.metrics()
    assert sent[named("failures", task="compute", error="BufferFull")] == "1|c"
    assert sent[named("used", "first")] == "3.0|g"
    assert sent[named("suppression-buffer-records", "second")] == "4.0|g"
    (age, kind) = sent[named("age_seconds")].split("|")
    assert (float(age) > 86_400, kind) == (True, "g")
    assert sent[named("condition")] == "0.0|g"  # a run is at work on batch 2
    assert named("lag") not in sent  # there is no broker that could say


@pytest.mark.broker
def test_failed_try_reports_the_waiting_offsets(
    tmp_path: Path, broker: KafkaBroker, statsd: StatsD, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"waiting_{uuid4().hex}"
    create_topics(broker.bootstrap_servers, topic)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for _ in range(5):
        producer.send(topic, b"{}", partition=0)
    producer.close()
    committed = Committed(tmp_path, "  - {kind: table}", kafka=broker.bootstrap_servers)
    committed.run_suffix = SUFFIX
    planned = committed.planned
    read = {"ranges": (OffsetRange(topic, 0, 0, 2),), "topic_ids": {topic: "id"}}
    monkeypatch.setattr(committed, "planned", lambda seq: replace(planned(seq), **read))
    committed.commit(1, {"first": []})
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    fail(BufferFull("The buffer is full"), "run-2")
    assert statsd.metrics()[named("lag")] == "3.0|g"


@pytest.mark.parametrize(
    ("error", "noted", "cause"),
    [
        (BrokerUnavailable("away"), True, "BrokerUnavailable"),
        (RuntimeError("Error code is: 1"), True, "BufferFull"),
        (TimeoutError("after an hour"), False, "TimeoutError"),
        (None, False, "unknown"),
    ],
)
def test_failure_cause_is_class_or_ledger_note(
    error: BaseException | None, noted: bool, cause: str, committed: Committed, statsd: StatsD
) -> None:
    committed.compute(2, {"first": []})
    if noted:
        committed.lease.note_failure(2, "compute", BufferFull("The buffer is full"))
    fail(error, "run-2")
    assert statsd.metrics()[named("failures", task="compute", error=cause)] == "1|c"


def test_failure_is_counted_without_a_ledger(
    committed: Committed, statsd: StatsD, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LEDGER", "postgresql+psycopg://nobody@127.0.0.1:1/l")
    with pytest.raises(LedgerUnavailable):
        fail(BrokerUnavailable("away"), "run-2")
    assert named("failures", task="compute", error="BrokerUnavailable") in statsd.metrics()


def test_failed_try_is_measured_beside_own_callbacks(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.factory import pipeline_dags

    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    text = committed.file.read_text()
    committed.file.write_text(f"airflow: {{on_task_retry: 'shop:retried'}}\n{text}")
    for task in pipeline_dags()["visitors"].tasks:
        first, second = (callback.func.__name__ for callback in task.on_failure_callback)
        assert (first, second) == ("measure_failure", "log_failure")
        assert task.on_retry_callback[0].func.__name__ == "measure_failure"
        assert len(task.on_retry_callback) == 2


def test_disabled_metrics_cost_no_question(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow import metrics

    counted: list[Any] = []
    count: Callable[..., None] = lambda *cause: counted.append(cause)  # noqa: E731
    monkeypatch.setattr(metrics, "count_failure", count)
    fail(BrokerUnavailable("away"), "run-2")
    assert counted == []


SEND = """
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from opentelemetry.metrics import get_meter_provider
from tidegate.ledger import Stream
from tidegate_airflow import metrics

stats.initialize(factory=get_stats_factory(), export_legacy_names=False)
metrics.gauge(Stream("visitors", 1), {("second", "emitted.changed"): 4.0})
metrics.count_failure(Stream("visitors", 1), "compute", "BufferFull")
get_meter_provider().force_flush()
"""


def test_opentelemetry_gets_the_same_names_and_tags(tmp_path: Path) -> None:
    points: dict[str, tuple[float, dict[str, str]]] = {}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            points.update(data_points(gunzip(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Collector)) as server:
        settings = {
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "AIRFLOW__METRICS__OTEL_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__OTEL_PORT": str(server.server_port),
            "PYTHONPATH": str(REPOSITORY / "plugins"),
        }
        subprocess.run([sys.executable, "-c", SEND], env={**os.environ, **settings}, check=True, timeout=600)
    stream = {"pipeline": "visitors", "generation": "1"}
    assert points["airflow.tidegate.emitted.changed"] == (4.0, {**stream, "stage": "second"})
    failure = {**stream, "task": "compute", "error": "BufferFull"}
    assert points["airflow.tidegate.failures"] == (1.0, failure)


def data_points(body: bytes) -> dict[str, tuple[float, dict[str, str]]]:
    """Metric -> value and attributes of its last point, in a request of OTLP."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest.FromString(body)
    points = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        point = (metric.gauge.data_points or metric.sum.data_points)[-1]
        attributes = {attribute.key: attribute.value.string_value for attribute in point.attributes}
        points[metric.name] = (point.as_double or float(point.as_int), attributes)
    return points
