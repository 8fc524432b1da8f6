"""What `doctor` says of a stage that gathers more than its topics take."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spec.files import made
from tidegate.sinks.kafka.limits import wide_threshold

TOPIC = {"kind": "kafka", "topic": "t"}


def told(emit: dict[str, Any], takes: int | None) -> str | None:
    pipeline = made({"reduce": "collect", "emit": {"on": "threshold", **emit}}, sinks=[TOPIC])
    return wide_threshold(pipeline.stages[0], "t", takes)


@pytest.mark.parametrize(
    ("max_bytes", "takes", "told_of"),
    [
        (900_000, 1_048_588, False),
        (1_000_000, 1_048_588, True),
        (900_000, None, False),
        (1_000_000, 20_000_000, True),
        (90_000, 100_000, False),
        (100_000, 100_000, True),
    ],
)
def test_a_threshold_that_gathers_more_than_its_topic_takes_is_told(
    max_bytes: int, takes: int | None, told_of: bool
) -> None:
    sentence = told({"max_bytes": max_bytes}, takes)
    assert (sentence is not None) == told_of
    assert sentence is None or (f"up to {max_bytes} bytes" in sentence and "Write `max_bytes: " in sentence)


def test_a_threshold_without_bytes_is_not_told_of() -> None:
    assert told({"count": 5}, 100_000) is None
