"""The timestamps that a topic accepts, by its configuration and the broker's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"
TYPE = "message.timestamp.type"
DIFFERENCE = "message.timestamp.difference.max.ms"
"""Until Kafka 3.x, one setting for both limits."""

RETENTION = "retention.ms"
CLEANUP = "cleanup.policy"
TIMESTAMP_SETTINGS = (BEFORE, AFTER, TYPE, DIFFERENCE, RETENTION, CLEANUP)
_UNLIMITED = 10**15
"""More than 30,000 years. Kafka's default, the largest `long`, means no limit."""


@dataclass(frozen=True)
class TimestampLimits:
    """The limits of a topic on timestamps, in milliseconds; None: no limit.

    Args:
        before_ms: how much a timestamp may be behind the broker's clock when the record arrives.
        after_ms: how much it may be ahead.
        kept_ms: how long the topic keeps a record after its timestamp.
    """

    before_ms: int | None = None
    after_ms: int | None = None
    kept_ms: int | None = None

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> TimestampLimits:
        """Return the limits that a topic's settings define, as far as the broker shows them.

        With LogAppendTime there is no limit, since the broker replaces the timestamps.

        Example: `TimestampLimits.parse({"message.timestamp.after.max.ms": "3600000"}).after_ms` is `3600000`.
        """
        if settings.get(TYPE) == "LogAppendTime":
            return cls()
        before, after = (_smallest(settings, name, DIFFERENCE) for name in (BEFORE, AFTER))
        deletes = "delete" in settings.get(CLEANUP, "")
        return cls(before, after, _smallest(settings, RETENTION) if deletes else None)

    @property
    def deletes_first(self) -> bool:
        """Return whether the topic deletes records that it would still accept."""
        return self.kept_ms is not None and (self.before_ms is None or self.kept_ms < self.before_ms)

    def earliest_ms(self, now_ms: int) -> int | None:
        """Return the earliest timestamp (epoch ms) that the topic accepts at an instant and does not delete
        at once.

        Example: `TimestampLimits(before_ms=1_000).earliest_ms(5_000)` is 4,000.
        """
        behind_ms = self.kept_ms if self.deletes_first else self.before_ms
        return None if behind_ms is None else now_ms - behind_ms

    def latest_ms(self, now_ms: int) -> int | None:
        """Return the latest timestamp (epoch ms) that the topic accepts at an instant. It stays acceptable
        later.
        """
        return None if self.after_ms is None else now_ms + self.after_ms


def hidden_settings(topic: str) -> str:
    """Return a message about a topic whose settings this user may not read."""
    return (
        f"The settings of the topic {topic} are not shown to this user, so what it refuses is found only "
        "when it is sent. Allow it to see them: kafka-acls.sh --add --allow-principal User:NAME --operation "
        f"DescribeConfigs --topic {topic}"
    )


def _smallest(settings: Mapping[str, str], *names: str) -> int | None:
    # Kafka writes "no limit" as -1, or as the largest number.
    given = [int(settings[name]) for name in names if name in settings]
    return min((limit for limit in given if 0 <= limit < _UNLIMITED), default=None)
