"""Records that are older than what an output topic takes or keeps, found when a batch is planned.

What a batch emits is known only after it is computed, and halts it then (decision 76). So what is found here
is a warning: early enough that a person can change a topic's retention before a backfill begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.app.root import App
from tidegate.errors import TidegateError
from tidegate.ledger import OffsetRange, Stream
from tidegate.sinks.port import EarliestTimestamp, OpenSink
from tidegate.spec import Pipeline


def old_record_warnings(
    app: App, stream: Stream, pipeline: Pipeline, ranges: Sequence[OffsetRange], clock_ms: int | None
) -> list[str]:
    """Return a sentence for each sink to which emissions of these ranges may be too old.

    `clock_ms` is the batch's clock; None: not known yet. A broker that does not answer gives a sentence, too:
    it must not keep a batch from being planned.
    """
    read = [planned for planned in ranges if planned.span]
    if not read:
        return []
    try:
        return [
            warning
            for sink in app.sinks(stream, pipeline)
            for warning in _sink_warnings(app, pipeline, sink, read, clock_ms)
        ]
    except TidegateError as error:
        return [f"Whether records are too old for a sink cannot be told: {type(error).__name__}: {error}"]


def _sink_warnings(
    app: App, pipeline: Pipeline, sink: OpenSink[Any], read: Sequence[OffsetRange], clock_ms: int | None
) -> Iterator[str]:
    earliest = sink.earliest_timestamp()
    if earliest is None:
        return
    if earliest.is_of_clock:
        if clock_ms is not None and clock_ms < earliest.timestamp_ms:
            yield f"The batch's clock is older than what {sink.name} takes: {earliest.rule}"
        return
    old = _older_records(app, pipeline, read, earliest)
    if old:
        offsets = sum(older.span for older in old)
        first = old[0]
        yield (
            f"{offsets} offsets in {len(old)} partitions, such as {first.topic}[{first.partition}] "
            f"{first.start} to {first.end - 1}, are older than what {sink.name} takes: {earliest.rule}"
        )


def _older_records(
    app: App, pipeline: Pipeline, read: Sequence[OffsetRange], earliest: EarliestTimestamp
) -> list[OffsetRange]:
    """Return the part of each range before its first record that is young enough.

    Records come in any order, so there may be more of them: this is what one question per topic tells.
    """
    old = []
    with app.log(pipeline.source.connection) as log:
        for topic in sorted({planned.topic for planned in read}):
            own = [planned for planned in read if planned.topic == topic]
            young_offsets = log.offsets_at(
                topic, [planned.partition for planned in own], earliest.timestamp_ms
            )
            for planned in own:
                first_young = (
                    young_offsets[planned.partition][0] if planned.partition in young_offsets else planned.end
                )
                old.append(planned.cut(first_young))
    return [older for older in old if older.span]
