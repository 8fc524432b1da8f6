"""`InSequence`, the step in front of the stages in which a change that comes too late has no effect."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.model.in_sequence import Change, InSequence
from tests.kernel.rows_for_tests import key_hash
from tidegate import kernel

KEEP_MS = 10
VALUE = pa.struct(
    [("frame", pa.struct([("n", pa.int64())])), ("sequence", pa.string()), ("deleted", pa.bool_())]
)
SCHEMA = kernel.input_schema(VALUE, VALUE, VALUE, pa.struct([("reason", pa.string())]))


class Kernel:
    """The pass over batches, with times as the engine gives them. `numbers`: of the changes that went on.

    `traced`: record by record, as `explain` has it. `compacting`: state is folded after each batch.
    """

    def __init__(
        self, keep_ms: int | None, arrow_rows: int = 3, traced: bool = False, compacting: bool = True
    ) -> None:
        self.stage = kernel.Stage(
            kernel.Latest(), kernel.InSequence(keep_ms), deduplicate="none", by_time=True
        )
        self.arrow_rows, self.traced, self.compacting = arrow_rows, traced, compacting
        self.log: list[Change] = []
        self.numbers: list[int] = []
        self.fates: list[tuple[str, Any]] = []
        self.times: dict[tuple[str, int], int] = {}
        self.counts = kernel.Counts()
        self.state: dict[str, dict[str, Any]] = {}
        self.rows: list[list[dict[str, Any]]] = []
        self.seq = 0

    @property
    def out(self) -> list[Change]:
        """The changes that went on, in the order of the log."""
        return [self.log[number] for number in self.numbers]

    def apply(self, changes: Iterable[Change]) -> None:
        self.decide([self.row(change) for change in changes])

    def decide(self, records: Sequence[dict[str, Any]]) -> None:
        """A batch of rows, as `row` makes them."""
        self.seq += 1
        batch = kernel.Batch(dict(self.times), trace=self.traced)
        by_hash = sorted([*self.state.values(), *reversed(records)], key=lambda row: int(row["hash"]))
        table = pa.Table.from_pylist(by_hash, schema=SCHEMA)
        size = self.arrow_rows
        parts = [table.slice(at, size) for at in range(0, max(table.num_rows, 1), size)]
        batches = [part.combine_chunks().to_batches() for part in parts]
        given_ = [batch[0] if batch else pa.RecordBatch.from_pylist([], schema=SCHEMA) for batch in batches]
        emitted: list[dict[str, Any]] = []
        for rows in kernel.decide(self.stage, given_, batch):
            for row in rows.to_pylist():
                self._take(row, emitted)
        self.rows.append(sorted(emitted, key=lambda row: (row["key"], row["ordinal"])))
        self.numbers += sorted(row["value"]["frame"]["n"] for row in emitted)
        if self.compacting:
            self.state = {key: row for key, row in self.state.items() if row["live"]}

    def row(self, change: Change) -> dict[str, Any]:
        number, home = len(self.log), ("in", change.partition)
        self.log.append(change)
        before = self.times.get(home, -1)
        self.times[home] = max(before, change.timestamp)
        sequence = None if change.sequence is None else f"{change.sequence:03}"
        value = {"frame": {"n": number}, "sequence": sequence, "deleted": change.deleted}
        return {
            "kind": kernel.RECORD,
            "hash": key_hash(change.key),
            "key": change.key,
            "updated_seq": 0,
            "topic": "in",
            "partition": change.partition,
            "offset": number,
            "turn": number,
            "part": 0,
            "timestamp": change.timestamp,
            "time": before,
            "value": None if sequence is None else value,
        }

    def _take(self, row: dict[str, Any], emitted: list[dict[str, Any]]) -> None:
        if row["kind"] == kernel.EMISSION:
            emitted.append(row)
        elif row["kind"] == kernel.STATE:
            stored = {name: row[name] for name in SCHEMA.names if name in row}
            self.state[row["key"]] = stored | {"updated_seq": self.seq, "turn": -1, "part": 0, "value": None}
        elif row["kind"] == kernel.TRACE:
            self.fates.append((row["reason"], json.loads(row["trace"])["known"]))
        elif row["kind"] == kernel.COUNTS:
            self.counts.include(json.loads(row["counts"]))


FATES = ("used", "deduplicated", "expired-window-record-drop")


def applied(changes: Sequence[Change], keep_ms: int | None = None) -> list[Change]:
    """Return the emissions of one batch, which equal those of a batch per change, and record by record."""
    whole, one_by_one, traced = Kernel(keep_ms), Kernel(keep_ms), Kernel(keep_ms, traced=True)
    for loop in (whole, traced):
        loop.apply(changes)
    for change in changes:
        one_by_one.apply([change])
    assert whole.out == one_by_one.out == traced.out
    return whole.out


def change(sequence: int | None, timestamp: int = 0, deleted: bool = False, key: str = "k") -> Change:
    return Change(key, sequence, deleted, timestamp)


def test_older_change_is_outdated_equal_change_redelivered() -> None:
    first, second, third = change(1), change(2), change(3)
    assert applied([first, third, second, third, first]) == [first, third]


def test_deletion_survives_any_older_change() -> None:
    deletion, older = change(5, deleted=True), change(4)
    assert applied([deletion, older]) == [deletion]
    assert applied([deletion, older, change(6)]) == [deletion, change(6)]


def test_a_tombstone_without_a_sequence_has_no_effect() -> None:
    deletion = change(5, deleted=True)
    assert applied([change(4), deletion, change(None), change(4)]) == [change(4), deletion]
    assert applied([change(6), change(None)]) == [change(6)], "it may be of an older deletion"


def test_deletion_is_kept_then_older_changes_are_late() -> None:
    deletion, other = change(5, 100, deleted=True), change(1, 125, key="other")
    assert applied([deletion, other, change(4, 109)], KEEP_MS) == [deletion, other], "late"
    assert applied([deletion, change(4, 109)], KEEP_MS) == [deletion]
    assert applied([deletion, change(4, 110)], KEEP_MS) == [deletion, change(4, 110)], "begins anew"


def test_live_key_keeps_its_sequence_for_ever() -> None:
    first, other, late = change(1, 0), change(1, 100, key="other"), change(2, 0)
    assert applied([first, other, late], KEEP_MS) == [first, other, late]


def test_a_deletion_that_is_forgotten_leaves_no_state() -> None:
    loop = Kernel(KEEP_MS)
    loop.apply([change(1, 0), change(2, 1, deleted=True)])
    assert list(loop.state) == ["k"]
    loop.apply([change(1, 21, key="other")])
    assert list(loop.state) == ["other"]


def test_explanations_say_what_was_known() -> None:
    loop = Kernel(KEEP_MS, traced=True)
    loop.apply([change(5), change(4), change(6, 1, deleted=True), change(6)])
    previous = [
        [{"sequence": "005"}],
        [{"sequence": "005"}],
        [{"sequence": "006", "deleted": True, "due": 21}],
    ]
    assert loop.fates == list(zip(["new", "outdated", "later", "outdated"], [[], *previous], strict=True))


CHANGES = st.builds(
    Change,
    st.sampled_from("aab"),
    st.integers(0, 8),
    st.booleans(),
    st.just(0),
    st.integers(0, 1),
)


def consistent(changes: Iterable[Change]) -> list[Change]:
    """Give all changes of a key with one sequence the same content and time."""
    return [replace(change, deleted=(change.sequence or 0) % 3 == 2) for change in changes]


@examples(60)
@given(st.lists(CHANGES, max_size=8), st.sets(st.integers(1, 7)), st.integers(1, 5))
def test_newest_change_of_a_key_always_wins(
    changes: Sequence[Change], cuts: set[int], arrow_rows: int
) -> None:
    """Take the newest change of a key, also over several partitions and batches."""
    loop, log = Kernel(None, arrow_rows), consistent(changes)
    ends = sorted(cuts | {0, len(log)})
    for start, end in itertools.pairwise(ends):
        loop.apply(log[start:end])
    ordered = sorted(log, key=lambda change: change.sequence or 0)
    newest = {change.key: (f"{change.sequence:03}", change.deleted) for change in ordered}
    values = {row["key"]: row["value"] for rows in loop.rows for row in rows}
    assert {key: (value["sequence"], value["deleted"]) for key, value in values.items()} == newest
    marks = {key: f"{'-' if deleted else '+'}{sequence}" for key, (sequence, deleted) in newest.items()}
    assert {key: row["digest"] for key, row in loop.state.items()} == marks


STEPS = st.tuples(
    st.sampled_from("aab"),
    st.one_of(st.none(), st.integers(0, 6)),
    st.booleans(),
    st.sampled_from([0, 0, 1, 4, 9, 10, 11, 25]),
    st.integers(0, 12),
)


def batches(
    steps: Sequence[tuple[str, int | None, bool, int, int]], cuts: set[int]
) -> Iterator[list[Change]]:
    """Changes: time goes on by the step's fourth number, and the record lags by its fifth."""
    now = 0
    batch: list[Change] = []
    for number, (key, sequence, deleted, passed, lag) in enumerate(steps):
        if number in cuts:
            yield batch
            batch = []
        now += passed
        batch.append(Change(key, sequence, deleted, max(0, now - lag)))
    yield batch


@examples(250)
@given(
    st.lists(STEPS, max_size=20),
    st.sets(st.integers(0, 20), max_size=6),
    st.integers(1, 5),
    st.sampled_from([None, KEEP_MS]),
    st.booleans(),
)
def test_sequence_equals_an_unbounded_model_for_any_cut(
    steps: Sequence[tuple[str, int | None, bool, int, int]],
    cuts: set[int],
    arrow_rows: int,
    keep_ms: int | None,
    compacting: bool,
) -> None:
    columns = Kernel(keep_ms, arrow_rows, compacting=compacting)
    records = Kernel(keep_ms, arrow_rows, traced=True, compacting=compacting)
    naive = InSequence(keep_ms)
    for batch in batches(steps, cuts):
        for runner in (columns, records, naive):
            runner.apply(batch)
    assert columns.out == records.out == naive.out
    assert columns.rows == records.rows
    assert columns.state == records.state
    assert columns.counts == records.counts
    for name in FATES:
        assert columns.counts[name] == naive.counts[name]


@examples(50)
@given(st.lists(st.tuples(CHANGES, st.integers(0, 9)), max_size=12))
def test_later_pass_reads_records_in_the_same_order(
    steps: Sequence[tuple[Change, int]],
) -> None:
    """Keep the order of a key's records over several partitions, whose timestamps go up and down."""
    first, second = Kernel(None), Kernel(None)
    rows = [first.row(replace(change, timestamp=at)) for change, at in steps]
    first.decide(rows)
    second.log = first.log
    second.decide([row for row in rows if row["offset"] in first.numbers])
    assert second.numbers == first.numbers
