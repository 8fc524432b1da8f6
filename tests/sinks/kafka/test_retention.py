"""Emissions that are older than the retention of their topic, on a real broker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.sinks.kafka.sending import SEVERAL, Sending, once
from tidegate.batch import validate_batch
from tidegate.errors import TimestampRefused
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker
WEEK_MS = 7 * 86_400_000


@pytest.fixture
def sending(tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> Sending:
    return Sending(tmp_path, broker.bootstrap_servers, monkeypatch, **{"retention.ms": str(WEEK_MS)})


def test_old_emission_halts_before_commit_with_remedies(sending: Sending) -> None:
    batches = sending.batches
    plan = batches.compute(1, {"first": [], "second": SEVERAL})
    with pytest.raises(
        TimestampRefused, match=rf"older than 7 days, 0:00:00 \(retention.ms={WEEK_MS}\)"
    ) as raised:
        validate_batch(batches.app, plan, "test")
    assert f"--alter --topic {sending.topic} --add-config retention.ms=-1" in str(raised.value)
    assert "`timestamp: clock`" in str(raised.value)
    sending.configure({"retention.ms": "-1"})
    validate_batch(batches.app, plan, "test")


def test_clock_timestamp_is_sent_where_declared(sending: Sending) -> None:
    batches = sending.batches
    sink = f"{{kind: kafka, topic: {sending.topic}}}"
    batches.file.write_text(batches.file.read_text().replace(sink, f"{sink[:-1]}, timestamp: clock}}"))
    clock_ms = time.time_ns() // 1_000_000
    batches.clock_ms = clock_ms
    sending.publish(1, *SEVERAL)
    assert sending.sent() == once(*SEVERAL)
    assert sending.timestamps() == {clock_ms}
