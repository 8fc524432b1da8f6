"""Find emissions that an output topic would refuse or delete, by their size or their timestamp, before they
are decided.

A broker compares a record's timestamp with its own clock when the record arrives (from Kafka 4.0 on, more
than an hour ahead is refused), whatever the batch's clock is. So these checks use the machine's clock, not
the batch's: an emission of yesterday in a backfill is not in the future. A topic also deletes by timestamps:
a record that is older than `retention.ms` when it arrives is deleted within minutes. Whatever decides
something is stored in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa

from tidegate.clock import current_ms
from tidegate.errors import RecordTooLarge, TimestampRefused
from tidegate.kafka.config import MAX_RECORD_BYTES
from tidegate.kafka.messages import Message, messages_of, sizes_of
from tidegate.kafka.topic_facts import AFTER, BEFORE, RETENTION, TimestampLimits
from tidegate.model.stage import Stage
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import EarliestTimestamp, TimestampBounds
from tidegate.storage.schema import TIMESTAMP

_BESIDE_BYTES = 2_000
"""Room for the parts of a record beside its value: the key, and the source chain in a header."""


def wide_threshold(stage: Stage, topic: str, largest: int | None) -> str | None:
    """Return a sentence on a `max_bytes` that makes records too large; None if it does not.

    Args:
        largest: The largest record that the topic accepts, in bytes; None if it is unknown.
    """
    # Two limits: tidegate's own for any record, and `max.message.bytes` of the topic.
    takes = min(MAX_RECORD_BYTES, largest or MAX_RECORD_BYTES)
    most = stage.emit.max_text_bytes
    if most is None or most <= takes - _BESIDE_BYTES:
        return None
    return (
        f"{stage.name} gathers values of up to {most} bytes (`max_bytes`), and {topic} gets "
        f"records of at most {takes}, key and headers included: a batch with a larger one halts. "
        f"Write `max_bytes: {(takes - _BESIDE_BYTES) * 9 // 10}`"
    )


def check_sizes(topic: str, largest: int | None, batches: Iterable[pa.RecordBatch]) -> None:
    """Check that each message fits into the topic, as it is or compressed.

    `batches` are read only if the topic accepts less than a batch may send.

    Raises RecordTooLarge if a message does not fit.
    """
    if largest is None or largest >= MAX_RECORD_BYTES:
        return
    # a broker compares the compressed batch with its limit; only large records are compressed here
    for batch in batches:
        large = np.flatnonzero(sizes_of(batch) > largest)
        for message in messages_of(batch.take(pa.array(large))):
            if _compressed_bytes(message) > largest:
                raise RecordTooLarge(
                    f"The emission of key {(message.key or b'')[:100]!r} has {message.size} bytes; the topic "
                    f"{topic} takes {largest} (max.message.bytes)",
                    "Nothing was published. Let the topic take more: kafka-configs.sh --alter --topic "
                    f"{topic} --add-config max.message.bytes=1048588; then run again.",
                )


def _compressed_bytes(message: Message) -> int:
    """Return the compressed bytes of key and value: a message that is too large without headers is so with
    them.
    """
    whole = (message.key or b"") + (message.value or b"")
    return len(pa.compress(whole, codec="lz4", asbytes=True))


def narrow_size(topic: str, largest: int | None) -> str | None:
    """Return a sentence on a topic that accepts only smaller records than a batch may send; None for other
    topics.
    """
    if largest is None or largest >= MAX_RECORD_BYTES:
        return None
    return (
        f"{topic} takes records of up to {largest} bytes, and a batch may send some of {MAX_RECORD_BYTES}: "
        "such a batch halts. Let it take them: kafka-configs.sh --alter "
        f"--topic {topic} --add-config max.message.bytes=1048588"
    )


_KAFKAS_OWN_AFTER_MS = 3_600_000


def timestamp_bounds(limits: TimestampLimits) -> TimestampBounds:
    """Return the timestamps that a topic with these limits accepts now."""
    now_ms = current_ms()
    return limits.earliest_ms(now_ms), limits.latest_ms(now_ms)


def letter_bounds(limits: TimestampLimits) -> TimestampBounds:
    """Return the timestamps that a topic of dead letters accepts now.

    The lower bound lets the topic retain each letter for at least half of its retention, also an older one.
    """
    now_ms = current_ms()
    earliest_ms, latest_ms = timestamp_bounds(limits)
    if limits.kept_ms is not None:
        # A letter with its old timestamp would be deleted within minutes, before anyone reads it.
        earliest_ms = max(earliest_ms or 0, now_ms - limits.kept_ms // 2)
    return earliest_ms, latest_ms


def check_timestamps(sink: KafkaSink, outbox: Outbox, limits: TimestampLimits) -> None:
    """Check that the topic would accept and retain each emission now. Raises TimestampRefused if not."""
    now_ms = current_ms()
    earliest_ms, latest_ms = limits.earliest_ms(now_ms), limits.latest_ms(now_ms)
    if sink.timestamp == "clock":
        clock_ms = outbox.plan.clock_ms
        # Every message has the batch's clock, so one comparison is enough.
        is_taken = (earliest_ms or 0) <= clock_ms <= (clock_ms if latest_ms is None else latest_ms)
        refused = None if is_taken else ("any", clock_ms)
    else:
        refused = outbox.outside(sink.timestamp_column or TIMESTAMP, earliest_ms, latest_ms)
    if refused is not None:
        raise _refused(sink, outbox, limits, refused, now_ms)


def earliest_timestamp(sink: KafkaSink, limits: TimestampLimits) -> EarliestTimestamp | None:
    """Return the earliest timestamp that the topic accepts and retains now; None if it accepts any."""
    earliest_ms = limits.earliest_ms(current_ms())
    if earliest_ms is None:
        return None
    fate = "go into quarantine" if sink.messages.refused_timestamp == "quarantine" else "halt the batch"
    rule = (
        f"the topic {sink.topic} {_rule(limits, is_ahead=False)}. Emissions with such timestamps {fate} "
        f"before it is decided. {_let_it_take(sink.topic, limits)}, {_otherwise(sink)}."
    )
    return EarliestTimestamp(earliest_ms, sink.timestamp == "clock", rule)


def long_hold(sink: KafkaSink, stages: Sequence[Stage], limits: TimestampLimits) -> str | None:
    """Return a sentence on stages that hold values back for longer than the topic accepts or retains them,
    or None.
    """
    # Whichever is the narrower: what the topic deletes, or what it refuses.
    taken_ms = limits.kept_ms if limits.deletes_first else limits.before_ms
    held_ms = sum(stage.longest_hold_ms for stage in stages)
    # with `record`, a value that was held back has the time at which that is over
    if sink.timestamp != "event" or taken_ms is None or held_ms < taken_ms:
        return None
    names = ", ".join(stage.name for stage in stages if stage.longest_hold_ms)
    return (
        f"{names} may hold a value back for {_duration(held_ms)} after its event, and {sink.topic} "
        f"{_rule(limits, is_ahead=False)}: a batch with such an emission halts. "
        f"{_let_it_take(sink.topic, limits)}, {_otherwise(sink)}"
    )


def narrow_timestamps(topic: str, limits: TimestampLimits) -> str | None:
    """Return a sentence on limits that are narrower than Kafka's own: an hour ahead, and any time ago."""
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
    at = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc)
    return TimestampRefused(
        f"The emission of key {key[:100]!r} is of {at:%Y-%m-%d %H:%M:%S} UTC; the topic {sink.topic} of sink "
        f"{sink.name} {_rule(limits, timestamp_ms > now_ms)}",
        f"Nothing was published. {_cure(sink.topic, limits, timestamp_ms, now_ms)}, {_otherwise(sink)}.",
    )


def _rule(limits: TimestampLimits, is_ahead: bool) -> str:
    if is_ahead:
        return f"takes none more than {_duration(limits.after_ms or 0)} ahead ({AFTER}={limits.after_ms})"
    if limits.deletes_first:
        return f"deletes what is older than {_duration(limits.kept_ms or 0)} ({RETENTION}={limits.kept_ms})"
    return f"takes none more than {_duration(limits.before_ms or 0)} old ({BEFORE}={limits.before_ms})"


def _cure(topic: str, limits: TimestampLimits, timestamp_ms: int, now_ms: int) -> str:
    if timestamp_ms > now_ms:
        taken_ms = timestamp_ms - (limits.after_ms or 0)
        at = datetime.fromtimestamp(taken_ms / 1000, timezone.utc)
        command = _command(topic, AFTER)
        return f"Run again after {at:%Y-%m-%d %H:%M:%S} UTC; or let the topic take them: {command}"
    return _let_it_take(topic, limits)


def _let_it_take(topic: str, limits: TimestampLimits) -> str:
    if limits.deletes_first:
        return f"Let the topic keep them: {_command(topic, RETENTION)}"
    return f"Let the topic take them: {_command(topic, BEFORE)}"


def _otherwise(sink: KafkaSink) -> str:
    if sink.timestamp == "clock":
        return "or write `timestamp: event` at the sink"
    quarantined = "or have such emissions quarantined (`refused_timestamp: quarantine` at the sink)"
    clocked = "or write `timestamp: clock` at the sink, which sends the batch's clock"
    return clocked if sink.refused_timestamp == "quarantine" else f"{clocked}; {quarantined}"


def _command(topic: str, *names: str) -> str:
    settings = ",".join(f"{name}={-1 if name == RETENTION else 2**63 - 1}" for name in names)
    return f"kafka-configs.sh --alter --topic {topic} --add-config {settings}"


def _duration(ms: int) -> str:
    return str(timedelta(milliseconds=ms))
