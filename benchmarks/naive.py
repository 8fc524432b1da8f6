"""The kernel's peers: loops over records, as one would write them into a `mapInArrow` function.

As plain as they can be: no quarantine, no `where`, no tombstones, no repeated records, no keys in several
partitions, no metrics. All get sorted rows as Arrow and give emissions and new state as Arrow.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidegate import kernel

_READ = ("kind", "key", "partition", "offset", "timestamp", "value", "emitted", "time")
_WRITTEN = {"key": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.int64()}
Batches = Sequence[pa.RecordBatch]
Rows = list[tuple[Any, ...]]
Decided = Iterator[tuple[Rows, Rows]]
"""Emissions and new state of each batch: (key, partition, offset, timestamp, value)."""


def in_arrow(decided: Decided, value: pa.DataType) -> Iterator[pa.RecordBatch]:
    """The emissions as Arrow batches, after the state was made Arrow too."""
    for emitted, states in decided:
        _as_batch(states, value)
        yield _as_batch(emitted, value)


def _as_batch(rows: Rows, value: pa.DataType) -> pa.RecordBatch:
    types = {**_WRITTEN, "value": value}
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def _rows(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    return zip(*(batch.column(name).to_pylist() for name in _READ), strict=True)


def change(batches: Batches) -> Decided:
    """Values that differ from the last one."""
    current, last, newest = None, None, None
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for kind, key, partition, offset, timestamp, value, sent, _ in _rows(batch):
            if key != current:
                if newest is not None:
                    states.append(newest)
                current, last, newest = key, None, None
            if kind == kernel.STATE:
                last = sent
            elif value != last:
                last = value
                newest = (key, partition, offset, timestamp, value)
                emitted.append(newest)
        yield emitted, states
    yield [], [newest] if newest else []


def spaced_change(batches: Batches, apart_ms: int, end_ms: int) -> Decided:
    """Values that differ from the last one, of which two are at least `apart_ms` apart."""
    current: str | None = None
    last: Any = None
    opens = -1
    pending: tuple[Any, ...] | None = None
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for kind, key, partition, offset, timestamp, value, sent, before in _rows(batch):
            if key != current:
                if pending is not None:
                    (emitted if opens <= end_ms else states).append(pending)
                current, last, opens, pending = key, None, -1, None
            if kind == kernel.STATE:
                last = sent
                continue
            if pending is not None and opens <= before:
                emitted.append(pending)
                last, opens, pending = pending[4], opens + apart_ms, None
            row = (key, partition, offset, timestamp, value)
            now = max(before, timestamp)
            if value == last:
                pending = None
            elif now < opens:
                pending = row
            else:
                emitted.append(row)
                last, opens, pending = value, now + apart_ms, None
        yield emitted, states
    if pending is not None:
        yield ([pending], []) if opens <= end_ms else ([], [pending])


def change_or_interval(batches: Batches, every_ms: int, end_ms: int) -> Decided:
    """Values that differ from the last one; others at the next multiple of `every_ms`."""
    current: str | None = None
    last: Any = None
    pending: tuple[Any, ...] | None = None
    due = 0
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for _, key, partition, offset, timestamp, value, _, before in _rows(batch):
            if key != current:
                if pending is not None:
                    (emitted if due <= end_ms else states).append(pending)
                current, last, pending = key, None, None
            if pending is not None and due <= before:
                emitted.append(pending)
                pending = None
            row = (key, partition, offset, timestamp, value)
            now = max(before, timestamp)
            if value != last:
                emitted.append(row)
                last, pending = value, None
                continue
            if pending is None:
                due = max((timestamp // every_ms + 1) * every_ms, now)
            pending = row
            if due <= now:
                emitted.append(row)
                pending = None
        yield emitted, states
    if pending is not None:
        yield ([pending], []) if due <= end_ms else ([], [pending])


def within(batches: Batches, column: str, amount: float) -> Decided:
    """Values that are further than `amount` from the last one that went out."""
    current, last, newest = None, None, None
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for kind, key, partition, offset, timestamp, value, sent, _ in _rows(batch):
            if key != current:
                if newest is not None:
                    states.append(newest)
                current, last, newest = key, None, None
            if kind == kernel.STATE:
                last = sent[column]
            elif last is None or abs(value[column] - last) > amount:
                last = value[column]
                newest = (key, partition, offset, timestamp, value)
                emitted.append(newest)
        yield emitted, states
    yield [], [newest] if newest else []


def latest(batches: Batches) -> Decided:
    """Every value."""
    newest = None
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for kind, key, partition, offset, timestamp, value, _, _ in _rows(batch):
            if newest is not None and newest[0] != key:
                states.append(newest)
                newest = None
            if kind != kernel.STATE:
                newest = (key, partition, offset, timestamp, value)
                emitted.append(newest)
        yield emitted, states
    yield [], [newest] if newest else []


def in_sequence(batches: Batches) -> Decided:
    """Changes whose sequence is later than all before them."""
    current, last, newest = None, "", None
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for _, key, partition, offset, timestamp, value, _, _ in _rows(batch):
            if key != current:
                if newest is not None:
                    states.append(newest)
                current, last, newest = key, "", None
            if value["sequence"] > last:
                last = value["sequence"]
                newest = (key, partition, offset, timestamp, value)
                emitted.append(newest)
        yield emitted, states
    yield [], [newest] if newest else []


def running_sum(batches: Batches, column: str) -> Decided:
    """The sum of each key so far, with every record."""
    current, total, newest, newest_ms = None, 0, None, -1
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for kind, key, partition, offset, timestamp, value, sent, _ in _rows(batch):
            if key != current:
                if newest is not None:
                    states.append(newest)
                current, total, newest, newest_ms = key, 0, None, -1
            if kind == kernel.STATE:
                total, newest_ms = sent[column], timestamp
                continue
            total += value[column]
            newest_ms = max(newest_ms, timestamp)
            newest = (key, partition, offset, newest_ms, {column: total})
            emitted.append(newest)
        yield emitted, states
    yield [], [newest] if newest else []


def threshold(
    batches: Batches,
    count: int,
    after_ms: int,
    end_ms: int,
    until: Callable[[Any], bool] = lambda event: False,
) -> Decided:
    """The events of each key, at `count` of them, with one that fulfils `until`, or `after_ms` past the first
    one's timestamp."""
    current: str | None = None
    events: list[Any] = []
    due = partition = offset = newest_ms = 0
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for _, key, place, at, timestamp, value, _, before in _rows(batch):
            if key != current:
                if events:
                    row = (current, partition, offset, newest_ms, {"events": events})
                    (emitted if due <= end_ms else states).append(row)
                    events = []
                current = key
            if events and due <= before:
                emitted.append((key, partition, offset, newest_ms, {"events": events}))
                events = []
            if not events:
                due, newest_ms = max(timestamp + after_ms, before, timestamp), timestamp
            events.append(value)
            partition, offset, newest_ms = place, at, max(newest_ms, timestamp)
            if len(events) >= count or until(value) or due <= max(before, timestamp):
                emitted.append((key, partition, offset, newest_ms, {"events": events}))
                events = []
        yield emitted, states
    if events:
        row = (current, partition, offset, newest_ms, {"events": events})
        yield ([row], []) if due <= end_ms else ([], [row])


def window_sums(batches: Batches, column: str, size_ms: int, grace_ms: int, end_ms: int) -> Decided:
    """The sum of each key and window, once, when the window is over; late records are dropped."""
    current: str | None = None
    windows: dict[int, list[Any]] = {}

    def close(until_ms: int) -> Iterator[tuple[Any, ...]]:
        for start in sorted(windows):
            if start + size_ms + grace_ms > until_ms:
                break
            total, place, at, newest = windows.pop(start)
            yield current, place, at, newest, {column: total}

    def left() -> Iterator[tuple[Any, ...]]:
        for total, place, at, newest in windows.values():
            yield current, place, at, newest, {column: total}
        windows.clear()

    next_close = 0
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for _, key, partition, offset, timestamp, value, _, before in _rows(batch):
            if key != current:
                emitted += close(end_ms)
                states += left()
                current, next_close = key, 0
            if windows and next_close <= before:
                emitted += close(before)
            start = timestamp - timestamp % size_ms
            now = max(before, timestamp)
            if start + size_ms + grace_ms > now:
                window = windows.setdefault(start, [0, 0, 0, -1])
                window[0] += value[column]
                window[1], window[2], window[3] = partition, offset, max(window[3], timestamp)
                next_close = min(windows) + size_ms + grace_ms
            if windows and next_close <= now:
                emitted += close(now)
        yield emitted, states
    emitted = list(close(end_ms))
    yield emitted, list(left())


def time_limit(batches: Batches, after_ms: int, end_ms: int, restarts: bool = False) -> Decided:
    """The newest value of each key, `after_ms` past the timestamp of the first one that is held back;
    `restarts`: past the largest timestamp of those that are held back."""
    current: str | None = None
    pending: tuple[Any, ...] | None = None
    due = since = 0
    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for _, key, partition, offset, timestamp, value, _, before in _rows(batch):
            if key != current:
                if pending is not None:
                    (emitted if due <= end_ms else states).append(pending)
                current, pending = key, None
            if pending is not None and (due <= before or (restarts and due < timestamp)):
                emitted.append(pending)
                pending = None
            now = max(before, timestamp)
            if pending is None or restarts:
                since = timestamp if pending is None else max(since, timestamp)
                due = max(since + after_ms, now)
            pending = (key, partition, offset, timestamp, value)
            if due <= now:
                emitted.append(pending)
                pending = None
        yield emitted, states
    if pending is not None:
        yield ([pending], []) if due <= end_ms else ([], [pending])


def bounded_time_limit(batches: Batches, after_ms: int, most: int, end_ms: int) -> Decided:
    """Limit the time as `time_limit`, with at most `most` keys of a partition in the buffer: the first due is
    emitted early."""
    current: int | None = None
    pending: dict[str, tuple[Any, ...]] = {}
    heap: list[tuple[int, str]] = []

    def fire(until_ms: int) -> Iterator[tuple[Any, ...]]:
        while heap and heap[0][0] <= until_ms:
            yield pending.pop(heapq.heappop(heap)[1])

    def left() -> Iterator[tuple[Any, ...]]:
        yield from pending.values()
        pending.clear()
        heap.clear()

    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for _, key, partition, offset, timestamp, value, _, before in _rows(batch):
            if partition != current:
                emitted += fire(end_ms)
                states += left()
                current = partition
            if heap and heap[0][0] <= before:
                emitted += fire(before)
            now = max(before, timestamp)
            if key not in pending:
                heapq.heappush(heap, (max(timestamp + after_ms, now), key))
            pending[key] = (key, partition, offset, timestamp, value)
            if heap[0][0] <= now:
                emitted += fire(now)
            while len(pending) > most:
                emitted.append(pending.pop(heapq.heappop(heap)[1]))
        yield emitted, states
    emitted = list(fire(end_ms))
    yield emitted, list(left())


def early_sums(
    batches: Batches, column: str, size_ms: int, grace_ms: int, every_ms: int, end_ms: int
) -> Decided:
    """The sum of each key and window when the window is over, and before at multiples of `every_ms` from its
    start, if it has changed."""
    current: str | None = None
    windows: dict[int, list[Any]] = {}

    def fire(until_ms: int) -> Iterator[tuple[Any, ...]]:
        while windows:
            due, start = min((window[4], start) for start, window in windows.items())
            if due > until_ms:
                return
            window = windows[start]
            total, place, at, newest, _, sent = window
            close = start + size_ms + grace_ms
            if due >= close:
                del windows[start]
            else:
                window[4] = close
            if due >= close or total != sent:
                window[5] = total
                yield current, place, at, newest, {column: total}

    for batch in batches:
        emitted: Rows = []
        states: Rows = []
        for _, key, partition, offset, timestamp, value, _, before in _rows(batch):
            if key != current:
                emitted += fire(end_ms)
                states += [(current, *window[1:4], {column: window[0]}) for window in windows.values()]
                windows.clear()
                current = key
            emitted += fire(before)
            start = timestamp - timestamp % size_ms
            now, close = max(before, timestamp), start + size_ms + grace_ms
            if close > now:
                window = windows.setdefault(start, [0, 0, 0, -1, close, None])
                if window[4] == close:
                    window[4] = min(start + ((now - start) // every_ms + 1) * every_ms, close)
                window[:4] = [window[0] + value[column], partition, offset, max(window[3], timestamp)]
            emitted += fire(now)
        yield emitted, states
    yield list(fire(end_ms)), [(current, *window[1:4], {column: window[0]}) for window in windows.values()]
