"""Emissions whose timestamp an output topic would refuse, found before they are decided.

A broker compares a record's timestamp with its own clock when the record arrives (from Kafka 4.0 on, an hour
ahead is too much), whatever the batch's clock is. So what is asked here is the machine's clock, and not the
batch's: a backfill's emission of yesterday is none of the future. As far as it decides anything, it is
written into the plan.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

from tidegate.broker.limits import AFTER, BEFORE, TimestampLimits
from tidegate.errors import TimestampRefused
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import TimestampBounds
from tidegate.spec import KafkaSink

_KAFKAS_OWN_AFTER_MS = 3_600_000


def timestamp_bounds(limits: TimestampLimits) -> TimestampBounds:
    """What a topic with these limits takes now."""
    now_ms = _now_ms()
    return limits.earliest_ms(now_ms), limits.latest_ms(now_ms)


def check_timestamps(sink: KafkaSink, outbox: Outbox, limits: TimestampLimits) -> None:
    """Find an emission that the topic would refuse now. Raises TimestampRefused."""
    now_ms = _now_ms()
    refused = outbox.outside(limits.earliest_ms(now_ms), limits.latest_ms(now_ms))
    if refused is not None:
        raise _refused(sink, outbox, limits, refused, now_ms)


def narrow_timestamps(topic: str, limits: TimestampLimits) -> str | None:
    """A sentence on limits that are narrower than Kafka's own: an hour ahead, and any time ago."""
    narrow = {}
    if limits.before_ms is not None:
        narrow[BEFORE] = f"older than {_duration(limits.before_ms)}"
    if limits.after_ms is not None and limits.after_ms < _KAFKAS_OWN_AFTER_MS:
        narrow[AFTER] = f"more than {_duration(limits.after_ms)} ahead"
    if not narrow:
        return None
    return (
        f"{topic} refuses timestamps {' or '.join(narrow.values())}, by the broker's clock: a batch that "
        "would send one halts before it is decided (TimestampRefused), and one that is published much later "
        f"than it was decided may be refused. Let it take them: {_command(topic, *narrow)}"
    )


def _refused(
    sink: KafkaSink, outbox: Outbox, limits: TimestampLimits, refused: tuple[str, int], now_ms: int
) -> TimestampRefused:
    key, timestamp_ms = refused
    is_ahead = timestamp_ms > now_ms
    name, limit_ms = (AFTER, limits.after_ms) if is_ahead else (BEFORE, limits.before_ms)
    assert limit_ms is not None, "an emission is outside of a limit that there is"
    at = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc)
    taken = (
        f"Run again after {at - timedelta(milliseconds=limit_ms):%Y-%m-%d %H:%M:%S} UTC; or let"
        if is_ahead
        else "Let"
    )
    return TimestampRefused(
        f"The emission of key {key[:100]!r} is of {at:%Y-%m-%d %H:%M:%S} UTC; the topic {sink.topic} of sink "
        f"{sink.name} takes none more than {_duration(limit_ms)} {'ahead' if is_ahead else 'old'} "
        f"({name}={limit_ms})",
        f"Nothing was published. {taken} the topic take it: {_command(sink.topic, name)}; or have such "
        "emissions quarantined (`refused_timestamp: quarantine` at the sink).",
    )


def _command(topic: str, *names: str) -> str:
    settings = ",".join(f"{name}={2**63 - 1}" for name in names)
    return f"kafka-configs.sh --alter --topic {topic} --add-config {settings}"


def _duration(ms: int) -> str:
    return str(timedelta(milliseconds=ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
