"""The topic of dead letters, which is published to like a sink. Its outbox is a batch's quarantine.

A dead letter has the key, value and headers of its record as consumed, and facts in more headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats import EMISSION
from tidegate.kafka.config import MAX_RECORD_BYTES
from tidegate.kafka.messages import BROUGHT, sizes_of
from tidegate.kafka.shard import Messages
from tidegate.kafka.topic_facts import hidden_settings
from tidegate.ledger import Attempt, Plan
from tidegate.model.quarantine_rules import DeadLetterTopic
from tidegate.sinks.kafka.limits import letter_bounds, narrow_size
from tidegate.sinks.kafka.sink import PublishedTopic
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import TimestampBounds
from tidegate.storage.quarantine_files import POSITION

_HEADER = "tidegate-quarantine-"
OMITTED = f"{_HEADER}omitted"
"""The parts of a record that are left out because it is larger than Kafka accepts: `value`, `headers`, `key`,
in this order.
"""
_OMISSIBLE = {"value": "value", BROUGHT: "headers", "key": "key"}
_COLUMNS = (*POSITION, "recorded", "timestamp", "key", "value", "headers", "reason", "part")


class OpenDeadLetters(PublishedTopic[DeadLetterTopic]):
    """Gets what all stages put into quarantine.

    No record is refused: if the topic does not accept a part of a record, the part is left out, and a header
    says so.
    """

    gets_emissions = False
    has_rivals = False  # each message names its stream in a header

    def outbox(self, plan: Plan, attempt: Attempt) -> Outbox:
        """Return the quarantine of an attempt. Raises LakeDamaged, LakeUnavailable."""
        return self.context.read_quarantine(plan, attempt)

    def erasure_effect(self) -> str:
        """Return a sentence on letters, of which none is removed."""
        return f"{self.name}: dead letters stay until the retention of the topic ends."

    def check_target(self) -> None:
        """Check that the topic is the one that was first published to, and accepts records without a key.

        Raises SinkRefused if the topic is compacted.
        """
        super().check_target()
        self.refuse_compaction(
            f"The topic {self.declared.topic} of dead letters is compacted: it takes no record without a key"
            ", and forgets all but the newest of a key"
        )

    def timestamp_bounds(self) -> Mapping[str, TimestampBounds]:
        """Return the bounds of the timestamps of dead letters.

        This also checks the topic before a batch is planned, since a batch cannot use another one later.
        """
        with self.log() as log:
            # A compacted topic refuses letters without a key; a decided batch could then never be published.
            self.check_target()
            limits = log.timestamp_limits(self.declared.topic)
        return {self.declared.target: letter_bounds(limits)}

    def warnings(self) -> Iterator[str]:
        """Yield a sentence if the topic accepts only smaller records than a batch may send."""
        topic = self.declared.topic
        with self.log() as log:
            largest = log.largest_bytes(topic)
        return filter(
            None, [hidden_settings(topic) if largest is None else None, narrow_size(topic, largest)]
        )

    def messages(self, outbox: Outbox) -> Messages:
        """Return a function that yields the records as they were consumed, each with the facts about its
        quarantine in headers.
        """
        bounds = outbox.plan.timestamps.get(self.declared.target, (None, None))
        return partial(letters, outbox, bounds)


def letters(outbox: Outbox, bounds: TimestampBounds, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the dead letters of a batch's quarantine from the `skip`-th on, always in the same order.

    Args:
        bounds: The timestamps that the topic accepts, from the plan.

    Raises LakeDamaged, LakeUnavailable.
    """
    # The same bytes at each try: the bounds come from the plan, and never from the topic as it is now.
    return map(partial(_letters, outbox.plan, bounds), outbox.batches(_COLUMNS, skip))


def _letters(plan: Plan, bounds: TimestampBounds, rows: pa.RecordBatch) -> pa.RecordBatch:
    topic, partition, offset = (rows.column(name) for name in POSITION)
    place = pc.binary_join_element_wise(topic, partition.cast(pa.string()), offset.cast(pa.string()), "/")
    part, is_emission = rows.column("part"), pc.equal(rows.column("part"), EMISSION)
    # `recorded` is Kafka's timestamp of the record; files from before that column have null there.
    original = pc.coalesce(rows.column("recorded"), rows.column("timestamp"))
    facts = {
        "reason": rows.column("reason"),
        "position": place,
        "batch": pa.repeat(f"{plan.stream}/{plan.seq}", rows.num_rows),
        "part": pc.if_else(is_emission, "emission", part.cast(pa.string())),
        "timestamp": original.cast(pa.string()),
    }
    return _fitting(
        pa.RecordBatch.from_pydict(
            {
                "key": rows.column("key"),
                "value": rows.column("value"),
                "timestamp_ms": _taken(original, bounds, plan.clock_ms),
                BROUGHT: rows.column("headers"),
                **{f"{_HEADER}{name}": texts.cast(pa.binary()) for name, texts in facts.items()},
            }
        )
    )


def _taken(timestamps: pa.Int64Array, bounds: TimestampBounds, clock_ms: int) -> pa.Int64Array:
    """Return timestamps that the topic accepts: the records' own, or the nearest; the batch's clock if
    there is none.

    Kafka accepts no timestamp before 1970.
    """
    # A letter is never refused for its timestamp: quarantine is the last place for it.
    earliest, latest = bounds
    taken = pc.max_element_wise(pc.fill_null(timestamps, clock_ms), max(earliest or 0, 0))
    return taken if latest is None else pc.min_element_wise(taken, latest)


def _fitting(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages that are not larger than a batch may send. Parts that are left out remain in
    quarantine.
    """
    # the value first: it is usually the largest part, and key and headers help to find the record
    for column in _OMISSIBLE:
        is_large = sizes_of(messages) > MAX_RECORD_BYTES
        if not is_large.any():
            break
        messages = _without(messages, column, is_large)
    return messages


def _without(
    messages: pa.RecordBatch, column: str, is_large: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.RecordBatch:
    columns = dict(zip(messages.schema.names, messages.columns, strict=True))
    rows = pa.array(np.arange(len(is_large)), mask=is_large)
    omitted = columns.get(OMITTED, pa.nulls(len(is_large), pa.binary()))
    more = pc.binary_join_element_wise(omitted, _OMISSIBLE[column].encode(), b", ", null_handling="skip")
    columns[column] = columns[column].take(rows)
    columns[OMITTED] = pc.if_else(pa.array(is_large), more, omitted)
    return pa.RecordBatch.from_pydict(columns)


SINK = OpenDeadLetters
