"""`expected` beside `on: quiet`: keys of a table that have never had a record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.rows_for_tests import key_hash
from tidegate import kernel
from tidegate.kernel.tables import topic_of
from tidegate.spark.state import due_rows

VALUE = pa.struct([("n", pa.int64())])
SCHEMA = kernel.input_schema(VALUE, VALUE, VALUE, pa.struct([("reason", pa.string())]))
TABLE = topic_of("devices/current")
AFTER = 10
Emission = tuple[str, int | None, str, int, int]


class Stage:
    """A stage over batches. `emitted`: key, value, reason, timestamp and instant of each emission."""

    def __init__(self, clock: kernel.Clock = "stream") -> None:
        quiet = kernel.Quiet(AFTER, clock=clock)
        self.stage = kernel.Stage(kernel.Latest(), quiet, deduplicate="offset", expects=True)
        self.state: dict[str, dict[str, Any]] = {}
        self.times: dict[tuple[str, int], int] = {}
        self.clock, self.seq = -1, 0
        self.emitted: list[Emission] = []
        self.counts = kernel.Counts()

    def apply(
        self,
        *records: tuple[str, int, int],
        table: Sequence[str] | None = None,
        clock: int | None = None,
    ) -> None:
        """Apply a batch of records: key, partition and timestamp. `table` has the keys of a changed table."""
        self.seq += 1
        starts, rows = dict(self.times), []
        for number, (key, partition, timestamp) in enumerate(records):
            home = ("in", partition)
            starts.setdefault(home, timestamp)
            before = self.times.get(home, -1)
            self.times[home] = max(before, timestamp)
            rows.append(_row(key, "in", partition, self.seq * 100 + number, timestamp, before))
        rows += [_row(key, TABLE, 0, self.seq, 0, None) for key in table or ()]
        own = clock if self.stage.clock == "run" else None
        floor = self.clock if self.stage.clock == "run" else -1
        tables = {} if table is None else {TABLE: "devices/current"}
        batch = kernel.Batch(dict(self.times), own, floor, tables=tables).started(starts)
        self._decide(sorted([*self._needed(rows, batch), *rows], key=lambda row: int(row["hash"])), batch)
        self.clock = max(self.clock, clock or -1)

    def _needed(self, rows: Sequence[Mapping[str, Any]], batch: kernel.Batch) -> list[dict[str, Any]]:
        """Return the state that tasks read: of keys with rows, and what `due_rows` asks for."""
        due = due_rows(self.stage, batch)
        assert due is not None
        state = [row for row in self.state.values() if row["live"]]
        table = pa.Table.from_pylist(state, schema=SCHEMA)
        fires = due.fires(table).to_pylist() if state else []
        keys = {row["key"] for row in rows}
        return [row for row, is_due in zip(state, fires, strict=True) if is_due or row["key"] in keys]

    def _decide(self, rows: Sequence[Mapping[str, Any]], batch: kernel.Batch) -> None:
        given_ = [pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)]
        emitted = []
        for decided in kernel.decide(self.stage, given_, batch):
            for row in decided.to_pylist():
                if row["kind"] == kernel.EMISSION:
                    emitted.append(row)
                elif row["kind"] == kernel.STATE:
                    stored = {name: row[name] for name in SCHEMA.names if name in row}
                    placed = {"updated_seq": self.seq, "turn": -1, "part": 0, "value": None}
                    self.state[row["key"]] = {**stored, **placed}
                elif row["kind"] == kernel.COUNTS:
                    self.counts.include(json.loads(row["counts"]))
        for row in sorted(emitted, key=lambda row: (row["key"], row["ordinal"])):
            value = None if row["value"] is None else row["value"]["n"]
            self.emitted.append((row["key"], value, row["reason"], row["timestamp"], row["at"]))


def _row(
    key: str, topic: str, partition: int, offset: int, timestamp: int, before: int | None
) -> dict[str, Any]:
    place = {"topic": topic, "partition": partition, "offset": offset, "turn": offset, "part": 0}
    own = {"kind": kernel.RECORD, "hash": key_hash(key), "key": key, "updated_seq": 0, "passes": True}
    value = {"n": None if topic == TABLE else timestamp}
    return {**own, **place, "timestamp": timestamp, "time": before, "value": value}


def test_absence_is_emitted_once_by_other_records() -> None:
    stage = Stage()
    stage.apply(("a", 0, 100), table=["a", "b"])
    stage.apply(("a", 0, 109))
    assert stage.emitted == []
    stage.apply(("a", 0, 110))
    stage.apply(("a", 0, 111), table=["a", "b"])
    stage.apply(("a", 0, 119))
    assert stage.emitted == [("b", None, "absent", 100, 110)]
    assert (stage.counts["expected"], stage.counts.accounted) == (2, 5)


def test_first_record_breaks_the_silence() -> None:
    stage = Stage()
    stage.apply(("a", 0, 100), table=["b"])
    stage.apply(("b", 0, 109), ("a", 0, 118))
    assert [row[:3] for row in stage.emitted] == [("a", 100, "quiet")]
    stage.apply(("a", 0, 119))
    assert stage.emitted[1:] == [("b", 109, "quiet", 109, 119)]


def test_all_partitions_must_have_passed_the_time() -> None:
    stage = Stage()
    stage.apply(("a", 0, 100), ("x", 1, 100), table=["b"])
    stage.apply(("a", 0, 150))
    assert "b" not in [row[0] for row in stage.emitted]
    stage.apply(("b", 1, 105), ("x", 1, 106))
    assert "b" not in [row[0] for row in stage.emitted]


def test_run_clock_reports_keys_of_an_idle_topic() -> None:
    stage = Stage("run")
    stage.apply(table=["b"], clock=1_000)
    stage.apply(clock=1_009)
    assert stage.emitted == []
    stage.apply(clock=1_010)
    assert stage.emitted == [("b", None, "absent", 1_000, 1_010)]


def test_without_any_time_no_key_waits() -> None:
    stage = Stage()
    stage.apply(table=["b"])
    assert stage.state == {}


@pytest.mark.parametrize("is_reported", [False, True])
def test_key_that_leaves_the_table_is_forgotten(is_reported: bool) -> None:
    stage = Stage("run")
    stage.apply(("a", 0, 995), table=["a", "b"], clock=1_000)
    if is_reported:
        stage.apply(clock=1_030)
    stage.apply(table=[], clock=1_031)
    assert [key for key, row in stage.state.items() if row["live"]] == ["a"], "it has had a record"
    stage.apply(clock=1_090)
    assert ("b" in [row[0] for row in stage.emitted]) == is_reported
    stage.apply(table=["b"], clock=1_091)
    stage.apply(clock=1_101)
    assert stage.emitted[-1] == ("b", None, "absent", 1_090, 1_100)


gaps = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1, 4, 9, 10, 11, 30])), max_size=12)


@examples(150)
@given(gaps, st.sets(st.integers(0, 11)))
def test_cuts_make_no_difference(log: list[tuple[str, int]], cuts: set[int]) -> None:
    records, at = [], 100
    for key, gap in log:
        at += gap
        records.append((key, 0, at))
    table = ["a", "b", "c"]
    whole, parts = Stage(), Stage()
    whole.apply(*records, table=table)
    start = 0
    for end in sorted({cut for cut in cuts if 0 < cut < len(records)} | {len(records)}):
        parts.apply(*records[start:end], table=table if start == 0 else None)
        start = end
    assert sorted(whole.emitted, key=str) == sorted(parts.emitted, key=str)
    assert sorted(whole.emitted, key=str) == sorted(_in_plain_python(records, table), key=str)


def _in_plain_python(records: Sequence[tuple[str, int, int]], table: Sequence[str]) -> list[Emission]:
    """Return the silences of a log in one partition, whose times ascend."""
    if not records:
        return []
    first, last = records[0][2], records[-1][2]
    befores = [-1, *(timestamp for *_, timestamp in records)]
    silences: list[Emission] = []
    for key in {*table, *(key for key, *_ in records)}:
        own = [(at, before) for (other, _, at), before in zip(records, befores, strict=False) if other == key]
        begins: list[tuple[int | None, int, str]] = [(at, at, "quiet") for at, _ in own]
        nexts: list[tuple[int, int] | None] = [*own[1:], None]
        if key in table:
            begins, nexts = [(None, first, "absent"), *begins], [*own, None] if own else [None]
        for (value, since, reason), following in zip(begins, nexts, strict=False):
            due = since + AFTER
            # another key's record has reached it before, or the next one is beyond it
            is_over = following is None or following[0] > due or following[1] >= due
            if is_over and due <= last:
                silences.append((key, value, reason, since, due))
    return silences
