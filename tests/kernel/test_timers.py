"""State rows that a clock ahead of now has set, after the clock was set back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidegate import kernel
from tidegate.kernel.rows import ENTRY, POSITION
from tidegate.kernel.timers import lower_entries

NOW, RIGHT = 1_000, 900
THRESHOLD = kernel.Stage(kernel.Collect(), kernel.Threshold(count=9, after_ms=60, since="arrival"))


def row(**columns: Any) -> dict[str, Any]:
    return {"key": "k", "topic": "t", "partition": 0, "offset": 1, "pending": 1, "live": True} | columns


def lowered(stage: kernel.Stage, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    emitted = pa.field("emitted", pa.struct([("n", pa.int64())]))
    schema = pa.schema([pa.field("key", pa.string()), *POSITION, *ENTRY, emitted])
    table = lower_entries(stage, pa.Table.from_pylist(list(rows), schema=schema), {("t", 0): RIGHT}, NOW)
    return [
        tuple(entry[name] for name in ("key", "since", "flushed_at", "due_at")) for entry in table.to_pylist()
    ]


def test_entries_wait_from_the_lowered_clock() -> None:
    rows = row(since=5_000, due_at=5_060), row(key="early", since=950, due_at=1_010)
    assert lowered(THRESHOLD, *rows) == [("k", RIGHT, None, RIGHT + 60)]


def test_partition_without_a_time_gets_the_least() -> None:
    assert lowered(THRESHOLD, row(topic="new", since=5_000, due_at=5_060)) == [("k", -1, None, 59)]


def test_last_flush_waits_from_the_lowered_clock() -> None:
    emit = kernel.Threshold(after_ms=60, since="last_flush")
    rows = row(since=800, flushed_at=5_000, due_at=5_060), row(key="idle", pending=0, flushed_at=5_000)
    assert lowered(kernel.Stage(kernel.Collect(), emit), *rows) == [
        ("k", 800, RIGHT, RIGHT + 60),
        ("idle", None, RIGHT, None),
    ]


def test_interval_between_changes_is_over_in_time() -> None:
    stage = kernel.Stage(kernel.Latest(), kernel.Change(at_most_every_ms=60, clock="run"))
    times = {"flushed_at": 5_000, "due_at": 5_060}
    rows = row(emitted={"n": 1}, since=5_010, **times), row(key="deleted", pending=0, **times)
    assert lowered(stage, *rows) == [
        ("k", 5_010, RIGHT, RIGHT + 60),
        ("deleted", None, RIGHT, RIGHT + 60),
    ]


def test_lower_clock_keeps_the_end_of_windows() -> None:
    emit = kernel.Threshold(after_ms=10_000, since="arrival")
    stage = kernel.Stage(kernel.Collect(), emit, kernel.Tumbling(2_000))
    window = {"window_start": 0, "window_end": 2_000}
    assert lowered(stage, row(since=1_500, due_at=2_000, **window)) == [("k", RIGHT, None, 2_000)]


def test_lower_clock_keeps_stages_on_event_time() -> None:
    stage = kernel.Stage(kernel.Collect(), kernel.Threshold(after_ms=60, since="arrival", clock="stream"))
    assert lowered(stage, row(since=5_000, due_at=5_060)) == []


def test_table_has_the_time_of_all_partitions() -> None:
    batch = kernel.Batch({("#t", 0): 5, ("in", 0): 20, ("in", 1): 30})
    assert (batch.end_of(("#t", 0)), batch.end_of(("in", 1)), batch.end_of_all) == (20, 30, 20)
    assert batch.started({("#t", 0): 5, ("in", 0): 7}).since == 7
