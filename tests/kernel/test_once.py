"""`Once`, the step in front of the stages that lets each value through once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel import model
from tests.kernel.model.once import Once
from tests.kernel.rows_for_tests import Kernel, Record, record_row
from tidegate import kernel

KEEP_MS = 10
PLACE = ("in", 0)


def record(timestamp: int) -> Record:
    return Record("k", {"a": 1.0, "b": "x"}, 0, timestamp, timestamp)


class Timed:
    """The kernel with times as the engine gives them: each record that of its partition before it."""

    def __init__(self, arrow_rows: int = 3) -> None:
        self.kernel = Kernel(kernel.Once(KEEP_MS), arrow_rows)
        self.offset, self.time = 0, -1

    def apply(self, *records: tuple[str, int]) -> None:
        """A batch of (key, timestamp)."""
        rows = []
        for key, timestamp in records:
            row = record_row(Record(key, {"a": 1.0, "b": "x"}, 0, self.offset, timestamp))
            rows.append(row | {"time": self.time})
            self.offset, self.time = self.offset + 1, max(self.time, timestamp)
        self.kernel.apply([], extra=rows, times={PLACE: self.time})

    @property
    def out(self) -> list[tuple[str, int]]:
        emitted = sorted(self.kernel.emitted_rows, key=lambda row: int(row["offset"]))
        return [(row["key"], row["timestamp"]) for row in emitted]


def let_through(*records: tuple[str, int]) -> list[tuple[str, int]]:
    """Return the emissions of one batch, which equal those of a batch per record."""
    whole, one_by_one = Timed(), Timed()
    whole.apply(*records)
    for record in records:
        one_by_one.apply(record)
    assert whole.out == one_by_one.out
    return whole.out


def test_possibly_forgotten_value_is_late_not_repeated() -> None:
    assert let_through(("a", 0), ("b", 10), ("a", 0)) == [("a", 0), ("b", 10)]


def test_value_is_remembered_while_it_can_repeat() -> None:
    assert let_through(("a", 100), ("b", 118), ("a", 109)) == [("a", 100), ("b", 118)]
    assert let_through(("a", 100), ("b", 118), ("a", 110)) == [("a", 100), ("b", 118), ("a", 110)]


def test_an_earlier_timestamp_is_a_repetition_too() -> None:
    assert let_through(("a", 100), ("a", 95), ("a", 91)) == [("a", 100)]


def test_late_ones_are_counted_as_such() -> None:
    timed = Timed()
    timed.apply(("a", 0), ("b", 10), ("a", 0), ("b", 11), ("c", 1))
    counts = timed.kernel.counts
    assert (counts["used"], counts["deduplicated"], counts["expired-window-record-drop"]) == (2, 1, 2)
    assert counts["late-record-drop"] == 2
    assert counts.accounted == 5


def test_forgotten_entry_that_returns_has_one_row() -> None:
    timed = Timed()
    timed.apply(("k", 0))
    timed.apply(("other", 25), ("k", 25))
    rows = [row for row in timed.kernel.state if row["key"] == "k"]
    assert [(row["updated_seq"], row["due_at"]) for row in rows] == [(1, 20), (2, 45)]
    timed.apply(("k", 26))
    assert timed.out == [("k", 0), ("other", 25), ("k", 25)]
    assert timed.kernel.counts["deduplicated"] == 1


STEPS = st.tuples(st.sampled_from("aab"), st.sampled_from([0, 0, 1, 4, 9, 10, 11, 25]), st.integers(0, 12))


def batches(steps: Sequence[tuple[str, int, int]], cuts: set[int]) -> Iterator[list[tuple[str, int]]]:
    """Keys with timestamps: time goes on by the step's second number, and the record lags by its third."""
    now, batch = 0, []
    for number, (key, passed, lag) in enumerate(steps):
        if number in cuts:
            yield batch
            batch = []
        now += passed
        batch.append((key, max(0, now - lag)))
    yield batch


@examples(300)
@given(st.lists(STEPS, max_size=25), st.sets(st.integers(0, 25), max_size=6), st.integers(1, 5))
def test_deduplication_equals_an_unbounded_model_for_any_cut(
    steps: Sequence[tuple[str, int, int]], cuts: set[int], arrow_rows: int
) -> None:
    timed, naive = Timed(arrow_rows), Once(KEEP_MS)
    for batch in batches(steps, cuts):
        first = timed.offset
        timed.apply(*batch)
        naive.apply(
            model.Record(key, {}, *PLACE, first + n, timestamp) for n, (key, timestamp) in enumerate(batch)
        )
    assert timed.out == [(record.key, record.timestamp) for record in naive.out]
    for name in ("used", "deduplicated", "expired-window-record-drop"):
        assert timed.kernel.counts[name] == naive.counts[name]


@examples(200)
@given(st.lists(STEPS, max_size=25))
def test_emissions_of_one_value_keep_their_distance(steps: Sequence[tuple[str, int, int]]) -> None:
    (whole,) = batches(steps, set())
    for key in "ab":
        times = sorted(timestamp for value, timestamp in let_through(*whole) if value == key)
        assert all(later - earlier >= KEEP_MS for earlier, later in itertools.pairwise(times))
