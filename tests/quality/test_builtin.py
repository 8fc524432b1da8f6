"""What a pipeline promises, decided over rows and numbers: against plain loops."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import kernel
from tidegate.kernel.keys import key_hashes
from tidegate.quality import neighbours, observations
from tidegate.quality.facts import BatchCounts, Needs, batch_counts, needs_of

VALUE = pa.struct([("x", pa.float64()), ("name", pa.string()), ("ignored", pa.int64())])
KEY_COLUMNS = pa.struct([("a", pa.string()), ("b", pa.int64())])
OUTBOX = pa.schema(
    [
        ("hash", pa.int64()),
        ("key", pa.string()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("ordinal", pa.int64()),
        ("reason", pa.string()),
        ("timestamp", pa.int64()),
        ("value", VALUE),
        ("key_columns", KEY_COLUMNS),
    ]
)
EXACT = kernel.Change(("x", "name"))


@dataclass(frozen=True)
class Emitted:
    """An emission of a stage; one that is `refused` is in quarantine, and not in the outbox."""

    key: str
    x: float | None = None
    window: int | None = None
    reason: str = "changed"
    deleted: bool = False
    refused: bool = False
    timestamp: int = 0

    @property
    def value(self) -> dict[str, Any] | None:
        return None if self.deleted else {"x": self.x, "name": "n", "ignored": id(self)}

    def equals(self, other: Emitted) -> bool:
        if self.deleted or other.deleted:
            return self.deleted == other.deleted
        both_nan = self.x != self.x and other.x != other.x
        return both_nan or self.x == other.x


def by_key(emissions: Sequence[Emitted]) -> list[list[Emitted]]:
    """Return the emissions key by key, as the outbox orders them."""
    return [
        [emission for emission in emissions if emission.key == key]
        for key in sorted({e.key for e in emissions})
    ]


def outbox(emissions: Sequence[Emitted]) -> pa.Table:
    rows = [
        {
            "key": emission.key,
            "window_start": emission.window,
            "window_end": None if emission.window is None else emission.window + 10,
            "ordinal": ordinal,
            "reason": emission.reason,
            "timestamp": emission.timestamp,
            "value": emission.value,
            "key_columns": {"a": "a", "b": 1},
        }
        for of_key in by_key(emissions)
        for ordinal, emission in enumerate(of_key)
        if not emission.refused
    ]
    table = pa.Table.from_pylist(rows, pa.schema([field for field in OUTBOX if field.name != "hash"]))
    return table.add_column(0, "hash", key_hashes(table["key"].combine_chunks()))


def parts(table: pa.Table, size: int) -> Iterator[pa.Table]:
    return (table.slice(start, size) for start in range(0, table.num_rows, size))


def equal_to_the_one_before(emissions: Sequence[Emitted]) -> int:
    """A plain loop: of each key the emissions of a window, but not over one that was refused."""
    count = 0
    for of_key in by_key(emissions):
        last: dict[int | None, tuple[int, Emitted]] = {}
        refused = 0
        for emission in of_key:
            if emission.refused:
                refused += 1
                continue
            previous = last.get(emission.window)
            if previous is not None and previous[0] == refused and emission.reason == "changed":
                count += emission.equals(previous[1])
            last[emission.window] = refused, emission
    return count


emitted = st.builds(
    Emitted,
    key=st.sampled_from("abc"),
    x=st.sampled_from([None, 0.0, -0.0, 1.0, float("nan")]),
    window=st.sampled_from([None, 0, 10]),
    reason=st.sampled_from(["changed", "changed", "heartbeat", "promoted"]),
    deleted=st.sampled_from([False, False, True]),
    refused=st.sampled_from([False, False, False, True]),
)


@settings(max_examples=150)
@given(st.lists(emitted, max_size=25), st.integers(1, 7))
def test_neighbours_equal_a_plain_loop_in_any_parts(emissions: list[Emitted], size: int) -> None:
    table = outbox(emissions)
    seen = neighbours.no_equal_neighbours(parts(table, size), EXACT)
    assert (seen.elements, seen.unexpected) == (table.num_rows, equal_to_the_one_before(emissions))
    assert seen.passed == (seen.unexpected == 0)
    assert len(seen.sample) == min(seen.unexpected or 0, 20)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (kernel.Change(("x",)), [False, True, False]),
        (kernel.Change(("x",), equal=kernel.Bytes()), [False, True, False]),
        (kernel.Change(("x",), equal=kernel.Bytes(), timestamp=True), [False, False, False]),
        (kernel.Change(("x",), equal=kernel.Within({"x": kernel.Amount(Decimal(1))})), [True, True, False]),
    ],
)
def test_neighbours_are_equal_by_the_stages_own_measure(change: kernel.Change, same: list[bool]) -> None:
    rows = [Emitted("k", x, timestamp=at) for at, x in enumerate((1.0, 2.0, 2.0, 4.0))]
    pairs = [neighbours.no_equal_neighbours([outbox(rows[at : at + 2])], change) for at in range(3)]
    assert [not pair.passed for pair in pairs] == same


def state_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    schema = pa.schema(
        [
            *((name, pa.int64()) for name in ("hash", "window_start", "window_end", "timestamp")),
            ("emitted_timestamp", pa.int64()),
            ("key", pa.string()),
            ("live", pa.bool_()),
            ("emitted", VALUE),
            ("digest", pa.string()),
        ]
    )
    table = pa.Table.from_pylist([{"live": True, "timestamp": 0, **row} for row in rows], schema)
    return table.set_column(0, "hash", key_hashes(table["key"].combine_chunks()))


@pytest.mark.parametrize(
    ("previous", "passed"),
    [
        ({"x": 1.0, "name": "n"}, False),
        ({"x": 2.0, "name": "n"}, True),
        (None, True),
    ],
)
def test_first_emission_differs_from_the_previous_state(
    previous: dict[str, Any] | None, passed: bool
) -> None:
    state = state_of(
        [{"key": "k", "emitted": previous}, {"key": "other", "emitted": {"x": 1.0, "name": "n"}}]
    )
    rows = outbox([Emitted("k", 1.0), Emitted("k", 3.0), Emitted("new", 1.0)])
    asked: list[list[int]] = []

    def before(hashes: Any) -> pa.Table:
        asked.append(hashes.tolist())
        return state

    seen = neighbours.no_equal_neighbours(parts(rows, 2), EXACT, before)
    assert (seen.passed, list(seen.sample)) == (passed, [] if passed else ["k"])
    hashes = key_hashes(pa.array(["k", "new"])).to_pylist()
    assert asked == [[hashes[0]], [hashes[1]]]


def test_value_that_returns_after_expiry_may_be_equal() -> None:
    rows = outbox([Emitted("k", 1.0, reason="new"), Emitted("k", 1.0, reason="new")])
    state = state_of([{"key": "k", "emitted": {"x": 1.0, "name": "n"}}])
    for expires in (True, False):
        seen = neighbours.no_equal_neighbours([rows], EXACT, lambda _: state, expires)
        assert seen.unexpected == (0 if expires else 2)


def test_deleted_key_or_other_window_has_no_previous() -> None:
    dead = {"key": "k", "live": False, "emitted": {"x": 1.0, "name": "n"}}
    window = {"key": "w", "window_start": 0, "window_end": 10, "emitted": {"x": 1.0, "name": "n"}}
    rows = outbox([Emitted("k", 1.0), Emitted("w", 1.0, window=10)])
    assert neighbours.no_equal_neighbours([rows], EXACT, lambda _: state_of([dead, window])).passed
    same = outbox([Emitted("w", 1.0, window=0)])
    assert not neighbours.no_equal_neighbours([same], EXACT, lambda _: state_of([dead, window])).passed


def test_quarantined_emission_makes_previous_state_unknown() -> None:
    state = state_of([{"key": "k", "emitted": {"x": 1.0, "name": "n"}}])
    rows = outbox([Emitted("k", 2.0, refused=True), Emitted("k", 1.0)])
    assert neighbours.no_equal_neighbours([rows], EXACT, lambda _: state).passed
    assert not neighbours.no_equal_neighbours([outbox([Emitted("k", 1.0)])], EXACT, lambda _: state).passed


def test_hash_state_is_compared_by_hash() -> None:
    emit = kernel.Change(("x", "name"), state="hash")
    rows = outbox([Emitted("k", 1.0)])
    values = neighbours._outputs(rows)
    digest = emit.marker(values)(0, 0)  # type: ignore[arg-type]
    for digest_before, passed in ((digest, False), ("0f", True), (None, True)):
        state = state_of([{"key": "k", "digest": digest_before}])
        assert neighbours.no_equal_neighbours([rows], emit, lambda _, s=state: s).passed == passed


def test_missing_state_columns_prove_nothing() -> None:
    rows = outbox([Emitted("k", 1.0)])
    old = state_of([{"key": "k", "emitted": {"x": 1.0, "name": "n"}}])
    narrower = pa.array([{"x": 1.0}], pa.struct([("x", pa.float64())]))
    old = old.set_column(old.column_names.index("emitted"), "emitted", narrower)
    assert neighbours.no_equal_neighbours([rows], EXACT, lambda _: old).passed


@settings(max_examples=100)
@given(st.lists(emitted, max_size=20), st.lists(st.lists(emitted, max_size=6), max_size=3), st.integers(1, 7))
def test_finals_equal_a_plain_loop(emissions: list[Emitted], earlier: list[list[Emitted]], size: int) -> None:
    rows = [emission for of_key in by_key(emissions) for emission in of_key]
    looked_at = [row for row in rows if not row.refused and row.reason != "promoted"]
    before = {
        (e.key, e.window) for batch in earlier for e in batch if not e.refused and e.reason != "promoted"
    }
    counts = Counter((emission.key, emission.window) for emission in looked_at)
    expected = sum(count - (entry not in before) for entry, count in counts.items())
    tables = [outbox(batch) for batch in earlier]
    seen = observations.one_final_per_entry(
        parts(outbox(emissions), size),
        lambda *_: (table.filter(pa.compute.not_equal(table["reason"], "promoted")) for table in tables),
    )
    assert (seen.elements, seen.unexpected) == (len(looked_at), expected)


def test_only_hashes_of_the_part_are_looked_up() -> None:
    asked: list[tuple[int, int]] = []

    def before(*hashes: int) -> list[pa.Table]:
        asked.append(hashes)  # type: ignore[arg-type]
        return []

    rows = outbox([Emitted("a"), Emitted("b", window=0), Emitted("b", window=10)])
    observations.one_final_per_entry(parts(rows, 2), before)
    a, b = key_hashes(pa.array(["a", "b"])).to_pylist()
    assert asked == [(a, a), (b, b)]


def test_null_in_a_key_is_reported() -> None:
    rows = outbox([Emitted("a"), Emitted("b"), Emitted("c")])
    place = rows.column_names.index("key_columns")
    columns = pa.array([{"a": "a", "b": 1}, {"a": None, "b": 1}, {"a": "c", "b": 2}], KEY_COLUMNS)
    seen = observations.keys_not_null(parts(rows.set_column(place, "key_columns", columns), 2))
    assert (seen.passed, seen.elements, seen.unexpected, list(seen.sample)) == (False, 3, 1, ["b"])
    assert observations.keys_not_null(parts(rows, 2)).passed
    none = pa.array([None, "b", "c"], pa.string())
    assert observations.keys_not_null([rows.set_column(1, "key", none)]).unexpected == 1


counts = st.builds(
    lambda used, quarantined, deduplicated, late, emitted: BatchCounts(
        used + quarantined + deduplicated + late, used, quarantined, deduplicated, late, emitted, emitted
    ),
    *[st.integers(0, 60)] * 5,
)


@given(counts, st.integers(-3, 3), st.integers(-3, 3))
def test_counts_add_up_by_fate_and_emission(whole: BatchCounts, more: int, rows: int) -> None:
    fields = {**whole.__dict__, "came_in": whole.came_in + more}
    seen = observations.counts_add_up(BatchCounts(**fields), whole.outgoing + rows)
    assert seen.passed == (more == 0 and rows == 0)
    exploded = observations.counts_add_up(BatchCounts(**fields | {"explodes": True}), whole.outgoing + rows)
    assert exploded.passed == (more >= 0 and rows == 0)


def test_counts_cover_batch_and_stage() -> None:
    of_ledger = {
        "": {"read": 8, "exploded": 2, "quarantined": 1, "deduplicated": 2, "expired-window-record-drop": 3}
        | {"used": 4},
        "first": {"quarantined": 1, "expired-window-record-drop": 3},
        "second": {"used": 9, "emitted": 7, "emitted-too-large": 2, "quarantined": 6},
    }
    in_stages = {"quarantined_in_stages": 7, "late_in_stages": 3}
    assert batch_counts(of_ledger, "second", True) == BatchCounts(10, 4, 1, 2, 3, 7, 5, True, **in_stages)
    assert batch_counts({}, "second", False) == BatchCounts(0, 0, 0, 0, 0, 0, 0)


@given(counts, st.floats(0, 1))
def test_share_is_at_most_its_bound(whole: BatchCounts, most: float) -> None:
    share = whole.late / whole.came_in if whole.came_in else 0
    assert observations.share_at_most(whole, whole.late, most).passed == (share <= most)


@given(st.lists(counts, max_size=12), counts, st.floats(0, 4), st.floats(0, 0.2))
def test_emitted_share_equals_the_standard_library_range(
    history: list[BatchCounts], now: BatchCounts, deviations: float, slack: float
) -> None:
    past = [past_batch.emitted / past_batch.came_in for past_batch in history if past_batch.came_in >= 100]
    seen = observations.emitted_share_as_before(now, history, observations.UsualRange(deviations, slack))
    if now.came_in < 100 or len(past) < 5:
        assert seen.passed
        return
    room = max(deviations * statistics.pstdev(past), slack)
    distance = abs(now.emitted / now.came_in - statistics.mean(past))
    if abs(distance - room) > 1e-9:  # both sums are rounded
        assert seen.passed == (distance < room)


def test_example_of_the_page_is_decided_so() -> None:
    history = [BatchCounts(1000, 1000, 0, 0, 0, emitted, emitted) for emitted in (200, 210, 190, 200, 205)]
    for emitted, passed in ((151, True), (149, False), (251, True), (252, False)):
        now = BatchCounts(1000, 1000, 0, 0, 0, emitted, emitted)
        assert observations.emitted_share_as_before(now, history).passed == passed


def test_only_what_a_suite_asks_for_is_read() -> None:
    def needs(*expectations: tuple[str, dict[str, Any]]) -> Needs:
        return needs_of({"type": type_, "kwargs": kwargs} for type_, kwargs in expectations)

    assert needs(("expect_column_to_exist", {"column": "a"})) == Needs()
    assert needs(("expect_counts_to_add_up", {})) == Needs(True)
    assert needs(("expect_equal_neighbours_to_be_absent", {})) == Needs(True, has_state=True)
    assert needs(("expect_equal_neighbours_to_be_absent", {"with_state": False})) == Needs(True)
    assert needs(
        ("expect_emitted_share_to_be_as_before", {}),
        ("expect_emitted_share_to_be_as_before", {"batches": 30}),
    ) == Needs(True, history=30)
    assert needs(("expect_one_final_per_window_and_key", {})) == Needs(True, outboxes=1)
    assert needs(("expect_one_final_per_window_and_key", {"batches": 0})) == Needs(True)
