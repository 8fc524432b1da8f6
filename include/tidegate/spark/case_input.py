"""Records of a case file, in place of Kafka's: decoded, and cut into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate import kernel
from tidegate.formats import FrameDecoder, Records
from tidegate.formats.explode import PART
from tidegate.spark.decoding import record_layout
from tidegate.spec import CaseRecord, Source, Tick

_LATEST_MS = 2**62
"""The end of the future without a clock, in epoch ms: windows and timers after it may have no number."""

Span = tuple[int, int]
"""Consecutive numbers: the first, and the one after the last."""


@dataclass(frozen=True)
class Cut:
    """One way to cut records into batches.

    Args:
        spans: the record numbers of each batch, in order and without gaps.
        clocks: the clock of each batch, epoch ms; None: it has none.
    """

    spans: tuple[Span, ...]
    clocks: tuple[int | None, ...]


class CaseInput:
    """Records, numbered 0, 1, 2 … in their order, and ticks between them.

    `ticks` has for each tick the number of records before it, and its clock in epoch ms.
    """

    def __init__(self, case_inputs: Iterable[CaseRecord | Tick]) -> None:
        self.records: list[CaseRecord] = []
        self.ticks: list[tuple[int, int]] = []
        for case_input in case_inputs:
            if isinstance(case_input, Tick):
                self.ticks.append((len(self.records), case_input.clock_ms))
            else:
                self.records.append(case_input)

    def cut(self, places: Iterable[int]) -> Cut:
        """Return the batches that end before the records with these numbers, without a clock, and at ticks.

        Example: three records without ticks and `cut([1])` give the spans `((0, 1), (1, 3))`.
        """
        number = len(self.records)
        ends: list[tuple[int, int | None]] = [(place, None) for place in places if 0 < place < number]
        # The sort is stable: after a cut at the place of a tick, the tick ends a batch without records.
        ends = sorted([*ends, *self.ticks], key=lambda end: end[0])
        # Records after the last tick are a batch, too; a case without any input has one empty batch.
        if not ends or ends[-1][0] < number:
            ends.append((number, None))
        starts = [0, *(end for end, _ in ends)]
        spans = tuple((start, end) for start, (end, _) in zip(starts, ends, strict=False))
        return Cut(spans, tuple(clock for _, clock in ends))

    def decoded(self, source: Source, keeps_input: bool) -> pa.RecordBatch:
        """Return rows of `FrameDecoder`, in the order of the records.

        `__turn` is a record's number: the order in a case is the order in the partition, whatever the offsets
        are.
        """
        layout = record_layout(source)
        # `concat_batches` refuses an empty list, and a case may have no records.
        pieces = [pa.RecordBatch.from_pylist([], FrameDecoder(layout, None, keeps_input).schema)]
        for (believed_until_ms, topic, partition), numbers in self._numbers_by_origin().items():
            decoder = FrameDecoder(layout, believed_until_ms, keeps_input)
            pieces += decoder.decode(self._numbered(topic, partition, numbers))
        rows = pa.concat_batches(pieces).sort_by([("__turn", "ascending"), (PART, "ascending")])
        # The decoder got record numbers in place of offsets; here the offsets of the case come back.
        offsets = pa.array([record.offset for record in self.records], pa.int64())
        place = rows.schema.get_field_index("__offset")
        return rows.set_column(place, rows.schema.field(place), offsets.take(rows.column("__turn")))

    def _numbers_by_origin(self) -> dict[tuple[int, str, int], list[int]]:
        """Return the records of each topic-partition between two ticks; keys begin with the end of believed
        timestamps.
        """
        numbers: dict[tuple[int, str, int], list[int]] = {}
        for number, (record, clock) in enumerate(zip(self.records, self._clocks(), strict=True)):
            believed_until_ms = _LATEST_MS if clock is None else clock + kernel.FUTURE_MS
            numbers.setdefault((believed_until_ms, record.topic, record.partition), []).append(number)
        return numbers

    def _clocks(self) -> Iterator[int | None]:
        """Yield per record the clock of the tick that ends its batch; None after the last tick."""
        start = 0
        for end, clock in self.ticks:
            yield from [clock] * (end - start)
            start = end
        yield from [None] * (len(self.records) - start)

    def _numbered(self, topic: str, partition: int, numbers: Sequence[int]) -> Records:
        """Return records with their numbers in place of their offsets."""
        records = [self.records[number] for number in numbers]
        return Records(
            topic,
            partition,
            numbers,
            [record.timestamp for record in records],
            [None if record.key is None else record.key.encode() for record in records],
            [record.payload for record in records],
            [[(name, text.encode()) for name, text in record.headers] for record in records],
        )
