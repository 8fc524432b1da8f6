"""What a topic takes: which timestamps, by its configuration and the broker's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"
TYPE = "message.timestamp.type"
DIFFERENCE = "message.timestamp.difference.max.ms"
"""Until Kafka 3.x, both of the limits in one."""

RETENTION = "retention.ms"
CLEANUP = "cleanup.policy"
TIMESTAMP_SETTINGS = (BEFORE, AFTER, TYPE, DIFFERENCE, RETENTION, CLEANUP)
_UNLIMITED = 10**15
"""More than 30,000 years. Kafka's own for no limit is the largest `long`."""


@dataclass(frozen=True)
class TimestampLimits:
    """How far a record's timestamp may be behind and ahead of the broker's clock when it arrives, in
    milliseconds, and how long the topic keeps a record after its timestamp; None: any distance.
    """

    before_ms: int | None = None
    after_ms: int | None = None
    kept_ms: int | None = None

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> TimestampLimits:
        """From a topic's settings, as far as the broker knows them. With LogAppendTime there is no limit:
        the broker writes timestamps of its own.
        """
        if settings.get(TYPE) == "LogAppendTime":
            return cls()
        before, after = (_smallest(settings, name, DIFFERENCE) for name in (BEFORE, AFTER))
        deletes = "delete" in settings.get(CLEANUP, "")
        return cls(before, after, _smallest(settings, RETENTION) if deletes else None)

    @property
    def deletes_first(self) -> bool:
        """Whether the topic deletes records that it would still take."""
        return self.kept_ms is not None and (self.before_ms is None or self.kept_ms < self.before_ms)

    def earliest_ms(self, now_ms: int) -> int | None:
        """Return the earliest timestamp, epoch ms, that is taken at an instant and not deleted at once."""
        behind_ms = self.kept_ms if self.deletes_first else self.before_ms
        return None if behind_ms is None else now_ms - behind_ms

    def latest_ms(self, now_ms: int) -> int | None:
        """The latest timestamp that is taken at an instant, epoch ms. What is taken stays taken later."""
        return None if self.after_ms is None else now_ms + self.after_ms


def hidden_settings(topic: str) -> str:
    """Return a sentence on a topic whose settings this user may not see."""
    return (
        f"The settings of the topic {topic} are not shown to this user, so what it refuses is found only "
        "when it is sent. Allow it to see them: kafka-acls.sh --add --allow-principal User:NAME --operation "
        f"DescribeConfigs --topic {topic}"
    )


def _smallest(settings: Mapping[str, str], *names: str) -> int | None:
    given = [int(settings[name]) for name in names if name in settings]
    return min((limit for limit in given if 0 <= limit < _UNLIMITED), default=None)
