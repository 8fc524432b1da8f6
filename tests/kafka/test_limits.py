"""What a topic takes and keeps, by its settings."""

from __future__ import annotations

import pytest

from tidegate.kafka.topic_facts import TimestampLimits

DAY_MS = 86_400_000


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_deleting_topic_takes_nothing_beyond_its_retention(policy: str) -> None:
    limits = TimestampLimits.parse({"cleanup.policy": policy, "retention.ms": str(7 * DAY_MS)})
    assert (limits.earliest_ms(8 * DAY_MS), limits.deletes_first) == (DAY_MS, True)


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "compact", "retention.ms": "1000"},
        {"cleanup.policy": "delete", "retention.ms": "-1"},
        {"cleanup.policy": "delete", "retention.ms": "1000", "message.timestamp.type": "LogAppendTime"},
        {},
    ],
)
def test_keeping_topic_or_broker_clock_takes_any_timestamp(settings: dict[str, str]) -> None:
    assert TimestampLimits.parse(settings).earliest_ms(8 * DAY_MS) is None


def test_the_narrower_of_retention_and_limit_counts() -> None:
    settings = {"cleanup.policy": "delete", "retention.ms": "5000", "message.timestamp.before.max.ms": "1000"}
    limits = TimestampLimits.parse(settings)
    assert (limits.earliest_ms(9000), limits.deletes_first) == (8000, False)
