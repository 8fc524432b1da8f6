"""`LastRecord`, the step before the stages that remembers each key's last record, and the records that a
changed table brings again.
"""

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
from tidegate.kernel.tables import kind_of, topic_of

FRAME = pa.struct([("n", pa.int64())])
WHOLE = pa.struct([("frame", FRAME), ("deleted", pa.bool_())])
TABLE = topic_of("rates/current")
TABLES = {TABLE: "rates/current"}
Row = Mapping[str, Any]


class Pass:
    """A stage over batches of rows, with its state."""

    def __init__(self, stage: kernel.Stage, value: pa.StructType, traced: bool = False) -> None:
        self.stage, self.traced = stage, traced
        reason = pa.struct([("reason", pa.string())])
        self.schema = kernel.input_schema(value, value, value, reason)
        self.state: dict[str, dict[str, Any]] = {}
        self.counts = kernel.Counts()

    def apply(self, rows: Sequence[Row], tables: Mapping[str, str] = TABLES) -> list[dict[str, Any]]:
        """Return the emissions of a batch, those of a key in order."""
        given_ = sorted([*self.state.values(), *rows], key=lambda row: int(row["hash"]))
        batch = pa.RecordBatch.from_pylist(given_, schema=self.schema)
        emitted = []
        for decided in kernel.decide(self.stage, [batch], kernel.Batch(tables=tables, trace=self.traced)):
            for row in decided.to_pylist():
                if row["kind"] == kernel.EMISSION:
                    emitted.append(row)
                elif row["kind"] == kernel.STATE:
                    stored = {name: row[name] for name in self.schema.names if name in row}
                    self.state[row["key"]] = {
                        **stored,
                        "updated_seq": 1,
                        "turn": -1,
                        "part": 0,
                        "value": None,
                    }
                elif row["kind"] == kernel.COUNTS:
                    self.counts.include(json.loads(row["counts"]))
        return sorted(emitted, key=lambda row: (row["key"], row["ordinal"]))


def row(key: str, value: Any, topic: str, offset: int, timestamp: int, **other: Any) -> dict[str, Any]:
    place = {"topic": topic, "partition": 0, "offset": offset, "turn": offset, "part": 0, "time": timestamp}
    own = {"kind": kernel.RECORD, "hash": key_hash(key), "key": key, "updated_seq": 0, "passes": True}
    return {**own, **place, "timestamp": timestamp, "value": value, **other}


def whole(n: int, deleted: bool = False) -> dict[str, Any]:
    return {"frame": {"n": n}, "deleted": deleted}


def last_record(deduplicate: Any = "offset", traced: bool = False) -> Pass:
    stage = kernel.Stage(kernel.Latest(), kernel.LastRecord(), deduplicate=deduplicate)
    return Pass(stage, WHOLE, traced)


def change(deduplicate: Any = "offset") -> Pass:
    stage = kernel.Stage(kernel.Latest(), kernel.Change(columns=("n",)), deduplicate=deduplicate)
    return Pass(stage, FRAME)


def remembered(pass_: Pass) -> dict[str, Any]:
    """Return key -> the record that the pass remembers of it."""
    return {key: row["accumulator"] for key, row in pass_.state.items() if row["live"]}


def test_each_record_goes_on_and_last_stays() -> None:
    pass_ = last_record()
    emitted = pass_.apply([row("a", whole(1), "in", 0, 5), row("a", whole(2), "in", 1, 3)])
    assert [emission["value"]["frame"]["n"] for emission in emitted] == [1, 2]
    assert remembered(pass_) == {"a": whole(2)}


def test_deletion_goes_on_whole_and_nothing_stays() -> None:
    for traced in (False, True):
        pass_ = last_record(traced=traced)
        pass_.apply([row("a", whole(1), "in", 0, 5)])
        (deleted,) = pass_.apply([row("a", whole(2, deleted=True), "in", 1, 6)])
        assert (deleted["value"], remembered(pass_)) == (whole(2, deleted=True), {})
        assert pass_.counts["state-rows"] == 0


records = st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9))


@examples(100)
@given(st.lists(st.lists(records, max_size=5), max_size=4))
def test_columns_and_records_decide_the_same(batches: list[list[tuple[str, bool, int]]]) -> None:
    passes = last_record(), last_record(traced=True)
    offset = 0
    for batch in batches:
        rows = [
            row(key, whole(offset + n, deleted), "in", offset + n, timestamp)
            for n, (key, deleted, timestamp) in enumerate(batch)
        ]
        offset += len(batch)
        by_column, by_record = (pass_.apply(rows) for pass_ in passes)
        assert by_column == by_record
        assert passes[0].state == passes[1].state
    assert passes[0].counts == passes[1].counts


@pytest.mark.parametrize("topics", [("in", "in"), ("Z", "in")], ids=["one partition", "two"])
def test_changed_table_comes_before_all_records(topics: tuple[str, str]) -> None:
    pass_ = change()
    pass_.apply([row("a", {"n": 1}, topics[0], 7, 50)])
    again = row("a", {"n": 2}, TABLE, 9, 50)
    emitted = pass_.apply([row("a", {"n": 3}, topics[1], 8, 40), again, row("a", {"n": 4}, topics[0], 9, 60)])
    assert [(e["value"]["n"], e["reason"]) for e in emitted] == [
        (2, "lookup:rates/current"),
        (3, "changed"),
        (4, "changed"),
    ]
    assert (emitted[0]["topic"], emitted[0]["offset"], emitted[0]["timestamp"]) == (TABLE, 9, 50)


def test_unchanged_result_of_changed_table_is_suppressed() -> None:
    pass_ = change()
    pass_.apply([row("a", {"n": 1}, "in", 0, 5)])
    assert pass_.apply([row("a", {"n": 1}, TABLE, 2, 5)]) == []
    assert pass_.counts["idempotent-update-skip"] == 1


@pytest.mark.parametrize("deduplicate", ["offset", "root"])
def test_changed_table_leaves_position_of_the_key(deduplicate: str) -> None:
    chain = {"source": "far/0/4"} if deduplicate == "root" else {}
    for pass_, values in (
        (change(deduplicate), ({"n": 1}, {"n": 2})),
        (last_record(deduplicate), (whole(1), whole(2))),
    ):
        repeated = row("a", values[0], "in", 3, 5, **chain)
        pass_.apply([repeated])
        assert len(pass_.apply([row("a", values[1], TABLE, 2, 5)])) == 1
        assert (pass_.state["a"]["topic"], pass_.state["a"]["offset"]) == ("in", 3)
        assert pass_.apply([repeated], {}) == []
        assert pass_.counts["deduplicated"] == 1


def test_records_of_tables_are_no_input() -> None:
    pass_ = change()
    pass_.apply([row("a", {"n": 1}, "in", 0, 5)])
    pass_.apply([row("a", {"n": 2}, TABLE, 2, 5), row("a", {"n": 3}, "in", 1, 9)])
    assert (pass_.counts.accounted, pass_.counts["rejoined"]) == (2, 1)
    assert pass_.counts["emitted.lookup"] == 1
    assert kind_of("lookup:rates/current") == "lookup"
    assert pass_.counts["record-lateness-count"] == 2, "what comes again is not late"
