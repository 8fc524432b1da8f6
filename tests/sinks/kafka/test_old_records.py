"""What plan and doctor say of records that are too old for an output topic, on a real broker."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from kafka.admin import NewTopic

from tests.batch.test_source import Source
from tidegate.app import stream_of
from tidegate.batch import Trigger, draft, old_record_warnings
from tidegate.cli import cli
from tidegate.inspect import sink_warnings
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
DAY_MS = 86_400_000


class Aged(Source):
    """A stream that sends what it reads to a topic that keeps it for seven days."""

    def __init__(self, folder: Path, servers: str) -> None:
        super().__init__(folder, servers)
        self.output = f"out-{uuid4().hex[:8]}"
        week = {"retention.ms": str(7 * DAY_MS)}
        self.admin("create_topics", [NewTopic(self.output, 1, 1, topic_configs=week)])
        self.write("{kind: table}", f"{{kind: kafka, topic: {self.output}}}")
        self.now_ms = time.time_ns() // 1_000_000

    def send_days_ago(self, *days: int) -> None:
        self.send(*(self.now_ms - number * DAY_MS for number in days))

    def warnings(self, clock_ms: int | None = None) -> list[str]:
        app, pipeline = self.batches.app, self.batches.pipeline
        plan = draft(app, pipeline, app.ledger.head(self.batches.stream), Trigger("dry", 0))
        return old_record_warnings(app, stream_of(pipeline), pipeline, plan.ranges, clock_ms)

    def command(self, *arguments: str) -> str:
        return CliRunner().invoke(cli, arguments, env=self.batches.environment).output


@pytest.fixture
def aged(tmp_path: Path, broker: KafkaBroker) -> Aged:
    return Aged(tmp_path, broker.bootstrap_servers)


def test_plan_and_doctor_name_records_beyond_retention(aged: Aged, caplog: pytest.LogCaptureFixture) -> None:
    aged.send_days_ago(30, 20, 1)
    (warning,) = aged.warnings()
    assert warning.startswith(f"2 offsets in 1 partition, such as {aged.topic}[0] 0 to 1, are older than")
    assert f"the topic {aged.output} deletes what is older than 7 days" in warning
    assert f"--alter --topic {aged.output} --add-config retention.ms=-1" in warning
    assert warning in aged.command("plan", "visitors").replace("\n", " ")
    assert warning in aged.command("doctor", "visitors", "--json")
    with caplog.at_level(logging.WARNING):
        aged.plan(aged.now_ms)
    assert warning in caplog.text


def test_young_records_are_not_named(aged: Aged) -> None:
    aged.send_days_ago(6, 1)
    assert aged.warnings() == []


def test_clock_sink_is_checked_against_the_batch_clock(aged: Aged) -> None:
    aged.write(f"topic: {aged.output}", f"topic: {aged.output}, timestamp: clock")
    aged.send_days_ago(30)
    assert aged.warnings() == aged.warnings(clock_ms=aged.now_ms) == []
    (warning,) = aged.warnings(clock_ms=aged.now_ms - 8 * DAY_MS)
    assert warning.startswith("The batch's clock is older than what kafka:")


def test_unreachable_output_does_not_block_a_plan(aged: Aged) -> None:
    aged.send_days_ago(30)
    aged.admin("delete_topics", [aged.output])
    assert aged.plan(aged.now_ms).plan is not None


@pytest.mark.parametrize(
    ("stage", "days"),
    [
        ("emit: {on: time_limit, after: 8d}", 8),
        ("emit: {on: interval, every: 9d}", 9),
        ("window: {tumbling: 7d, grace: 3d}, emit: {on: window_close}", 10),
        ("window: {session: 7d}, emit: {on: window_close}", 7),
        ("emit: {on: time_limit, after: 6d}", None),
        ("emit: {on: update}", None),
    ],
)
def test_doctor_finds_stages_that_outlast_the_retention(aged: Aged, stage: str, days: int | None) -> None:
    aged.write("emit: {on: change}", stage)
    findings = [
        text for text in sink_warnings(aged.batches.app, aged.batches.pipeline) if "hold a value" in text
    ]
    assert [f"second may hold a value back for {days} days" in text for text in findings] == [True] * (
        days is not None
    )
