"""Whole columns against record by record, row for row; and both against the model."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import Case, histories
from tests.kernel.model.values import same
from tests.kernel.test_against_model import assert_alike, by_key, counted, filled
from tidegate import errors, kernel
from tidegate.kernel import decision

Rows = list[dict[str, Any]]


class Recorded(Kernel):
    """A kernel that keeps every row that comes out of it, in an order that both ways have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.batches: list[Rows] = []

    def _decide(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> None:
        super()._decide(records, batch)
        self.batches.append(list(_comparable(self.rows)))


def _comparable(rows: Rows) -> Iterator[dict[str, Any]]:
    """Emissions and state by key, each key's emissions in their order; then the counts that are not 0."""
    hashes = [row["hash"] for row in rows if row["kind"] == kernel.STATE]
    assert hashes == sorted(hashes), "files of state are sorted by hash"
    decided = [row for row in rows if row["kind"] in (kernel.EMISSION, kernel.STATE)]
    yield from sorted(decided, key=lambda row: (row["kind"], row["key"], _start(row)))
    counts = [json.loads(row["counts"]) for row in rows if row["kind"] == kernel.COUNTS]
    yield from ({name: number for name, number in count.items() if number} for count in counts)


def _start(row: dict[str, Any]) -> int:
    """A key's emissions have an order; its windows have state rows in the order in which they changed."""
    return 0 if row["kind"] == kernel.EMISSION or row["window_start"] is None else int(row["window_start"])


@contextmanager
def record_by_record() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "column_kernel", lambda *_: None)
        yield


def assert_both_ways_alike(case: Case, batches: Sequence[Batch], **feeding: Any) -> None:
    """Require the same rows from both ways; without compaction, which drops deleted keys, also the
    model's.
    """
    columns, records, model = Recorded(case, **feeding), Recorded(case, **feeding), case.model()
    outcome = outcome_of(columns, batches)
    with record_by_record():
        assert outcome_of(records, batches) == outcome
    for ours, theirs in zip(columns.batches, records.batches, strict=True):
        for row, expected in itertools.zip_longest(ours, theirs):
            assert same(row, expected), f"{row} instead of {expected}"
    if outcome == "applied" and not feeding["compacting"]:
        assert not filled(model, batches)
        assert_alike(columns, model, ordered=True)


def outcome_of(loop: Recorded, batches: Sequence[Batch]) -> str:
    """Return the outcome of a history: the error's message for a record that cannot be used."""
    try:
        return "full" if filled(loop, batches) else "applied"
    except errors.RecordFailed as error:
        return str(error)


CLOCKS = st.sampled_from(["stream", "run"])
WITHIN = st.fixed_dictionaries(
    {"x": st.sampled_from([0, 0.1, 0.5, 1, "10%", "50%"])}, optional={"i": st.sampled_from([1, 58, "1%"])}
)
SELECTED = st.sampled_from([{"x": "x"}, {"x": "x", "s": "s"}, {"x": "x", "i": "i"}, {"x": "x", "m": "m"}])


@st.composite
def within(draw: st.DrawFn) -> Case:
    select = draw(SELECTED)
    tolerances = {name: amount for name, amount in draw(WITHIN).items() if name in select}
    emit = {"on": "change", "equal": {"within": tolerances}}
    return Case({"name": "out", "reduce": "latest", "select": select, "emit": emit})


FEEDING = st.fixed_dictionaries(
    {"arrow_rows": st.integers(1, 40), "sparing": st.booleans(), "compacting": st.booleans()}
)
HISTORIES = st.one_of(histories(), histories(True), histories(True, nulls=False))
"""They have late records, repetitions and state in them, and most also tombstones."""


@st.composite
def living(draw: st.DrawFn) -> Case:
    """Values whose state expires, in the batch that has them, between two of them, or much later."""
    case, after = draw(within()), draw(st.sampled_from(["1ms", "6ms", "25ms", "90ms"]))
    emit = {**case.stage["emit"], "clock": draw(CLOCKS)}
    ttl = draw(st.sampled_from([after, {"after": after, "emit": "deletion"}]))
    return replace(case, stage={**case.stage, "emit": emit, "ttl": ttl})


AGGREGATES = ["count(*)", "count(x)", "sum(x)", "sum(i)", "min(i)", "max(i)", "count(s)", "max(x)", "last(s)"]


@st.composite
def aggregates(draw: st.DrawFn, emit: dict[str, Any], window: dict[str, str] | None = None) -> Case:
    """Mostly of those that have a way on columns."""
    functions = draw(st.lists(st.sampled_from(AGGREGATES[:7]), min_size=1, max_size=3))
    functions += draw(st.lists(st.sampled_from(AGGREGATES), max_size=1)) if draw(st.booleans()) else []
    reduce = {f"f{number}": function for number, function in enumerate(functions)}
    stage = {"name": "out", "reduce": reduce, "emit": emit}
    return Case(stage | ({"window": window} if window else {}))


LIMITS = st.one_of(
    st.fixed_dictionaries({"on": st.just("time_limit"), "after": st.sampled_from(["3ms", "15ms", "30ms"])}),
    st.fixed_dictionaries({"on": st.just("interval"), "every": st.sampled_from(["7ms", "30ms"])}),
)
SILENCES = st.fixed_dictionaries(
    {"on": st.just("quiet"), "after": st.sampled_from(["1ms", "3ms", "15ms", "30ms"])}
)
THRESHOLDS = st.fixed_dictionaries(
    {"on": st.just("threshold"), "count": st.sampled_from([1, 2, 3, 5])},
    optional={"after": st.sampled_from(["3ms", "12ms", "30ms"])},
) | st.fixed_dictionaries(
    {"on": st.just("threshold"), "after": st.sampled_from(["3ms", "12ms"])},
    optional={"since": st.sampled_from(["arrival", "first_event"])},
)


@st.composite
def holding(draw: st.DrawFn, reduce: str, emits: st.SearchStrategy[dict[str, Any]]) -> Case:
    emit = {**draw(emits), "clock": draw(CLOCKS)}
    return Case({"name": "out", "reduce": reduce, "select": {"x": "x", "s": "s"}, "emit": emit})


TUMBLING = st.fixed_dictionaries(
    {"tumbling": st.sampled_from(["5ms", "20ms"])}, optional={"grace": st.sampled_from(["0ms", "7ms"])}
)


@st.composite
def windowed(draw: st.DrawFn) -> Case:
    emit = {"on": "window_close", "clock": draw(CLOCKS)}
    return draw(aggregates(emit, draw(TUMBLING)))


ALIKE = {
    "change within": within(),
    "state that expires": living(),
    "update of aggregates": aggregates({"on": "update"}),
    "time limit and interval": holding("latest", LIMITS),
    "quiet": holding("latest", SILENCES) | holding("collect", SILENCES),
    "threshold of events": holding("collect", THRESHOLDS),
    "window close of aggregates": windowed(),
}


@pytest.mark.parametrize("cases", ALIKE.values(), ids=ALIKE)
@examples(150)
@given(st.data(), HISTORIES, FEEDING)
def test_strategy_on_columns_equals_rows(
    cases: st.SearchStrategy[Case], data: st.DataObject, batches: list[Batch], feeding: dict[str, Any]
) -> None:
    assert_both_ways_alike(data.draw(cases), batches, **feeding)


BOUNDS = st.sampled_from([1, 2, 3, 5])
BUFFERS = st.builds(
    lambda most, when_full: {"max_records": most, "when_full": when_full},
    BOUNDS,
    st.sampled_from(["emit_early", "emit_early", "emit_early", "shut_down"]),
)
CROWDED = st.sampled_from([16, 40])
"""Records of a history in which buffers are full again and again."""


@st.composite
def crowds(draw: st.DrawFn) -> list[Batch]:
    """Many keys in two partitions, with ties, late records and deletions, cut into batches with clocks.

    No record comes twice: a partition with a repetition goes record by record.
    """
    offsets, now, batches = [0, 0], 0, []
    for _ in range(draw(st.integers(1, 4))):
        records = []
        for _ in range(draw(st.integers(0, draw(CROWDED)))):
            now += draw(st.sampled_from([0, 0, 0, 1, 2, 7]))
            partition = draw(st.sampled_from([0, 0, 0, 1]))
            offsets[partition] += draw(st.integers(1, 2))
            timestamp = max(0, now - draw(st.sampled_from([0, 0, 0, 1, 5, 40])))
            key = draw(st.sampled_from(["a", "b", "c", "d", "e", "ä", "Z", "日本"]))
            x, is_deletion = draw(st.integers(0, 3)), draw(st.sampled_from([False, False, False, True]))
            value = None if is_deletion else {"x": float(x), "s": "p", "i": x, "d": None, "m": None}
            records.append(Record(key, value, "in", partition, offsets[partition], timestamp))
        clock = draw(st.none() | st.integers(0, now + 40))
        cut_at = draw(st.sampled_from([frozenset(), frozenset(), frozenset({("in", 0)})]))
        batches.append(Batch(tuple(records), clock, cut_at))
    return batches


COMPACTED = st.fixed_dictionaries({"arrow_rows": st.integers(1, 40), "compacting": st.just(True)})
"""Of each entry the newest state row alone, as state is looked up: with others it goes record by record."""


@st.composite
def bounded(draw: st.DrawFn) -> Case:
    emit = {"on": "time_limit", "after": draw(st.sampled_from(["1ms", "6ms", "30ms"])), "clock": draw(CLOCKS)}
    stage = {"name": "out", "reduce": "latest", "select": {"x": "x", "s": "s"}}
    return Case(stage | {"emit": emit | {"buffer": draw(BUFFERS)}})


@st.composite
def bounded_windows(draw: st.DrawFn) -> Case:
    buffer = {"max_records": draw(st.sampled_from([1, 3, 6, 12])), "when_full": "shut_down"}
    emit = {"on": "window_close", "clock": draw(CLOCKS), "buffer": buffer}
    return draw(aggregates(emit, draw(TUMBLING)))


def of_partitions(rows: Rows) -> Rows:
    """Rows by partition, key and window: what a key emits in several partitions has no common order yet."""

    def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["kind"], row["topic"], row["partition"], row["key"], _start(row))

    *decided, counts = rows
    by_place = sorted(decided, key=place_of)
    entries: Counter[tuple[Any, ...]] = Counter()
    for row in by_place:
        if row["kind"] == kernel.EMISSION:
            place = (row["topic"], row["partition"], row["key"])
            row["ordinal"], entries[place] = entries[place], entries[place] + 1
    return [*by_place, counts]


def assert_both_ways_and_the_model_alike(case: Case, batches: Sequence[Batch], **feeding: Any) -> None:
    """Require the same rows of partitions from both ways, and from the model after compaction if nothing
    comes twice: then nothing needs what compaction has dropped.
    """
    columns, records, model = Recorded(case, **feeding), Recorded(case, **feeding), case.model()
    full = filled(columns, batches)
    with record_by_record():
        assert filled(records, batches) == full
    for ours, theirs in zip(columns.batches, records.batches, strict=True):
        for row, expected in itertools.zip_longest(of_partitions(ours), of_partitions(theirs)):
            assert same(row, expected), f"{row} instead of {expected}"
    positions = [record.position for batch in batches for record in batch.records]
    if len(set(positions)) == len(positions) or not feeding["compacting"]:
        assert filled(model, batches) == full
        if not full:
            assert_alike(columns, model, ordered=False)


BOUNDED = {"time limit": bounded(), "window close": bounded_windows()}


@pytest.mark.parametrize("cases", BOUNDED.values(), ids=BOUNDED)
@examples(150)
@given(st.data(), crowds() | HISTORIES, COMPACTED | FEEDING)
def test_columns_of_bounded_buffers_equal_rows(
    cases: st.SearchStrategy[Case], data: st.DataObject, batches: list[Batch], feeding: dict[str, Any]
) -> None:
    assert_both_ways_and_the_model_alike(data.draw(cases), batches, **feeding)


@examples(75)
@given(bounded(), crowds())
def test_stream_clock_evictions_do_not_depend_on_cuts(case: Case, batches: list[Batch]) -> None:
    stage = case.stage | {"emit": case.stage["emit"] | {"clock": "stream"}}
    log = [record for batch in batches for record in batch.records]
    outcomes = []
    for cuts in ([log], [[record] for record in log], [batch.records for batch in batches]):
        loop = Kernel(Case(stage), arrow_rows=40, compacting=True)
        full = filled(loop, [Batch(tuple(records)) for records in cuts])
        outcomes.append("full" if full else repr((by_key(loop.emissions, False), counted(loop.counts))))
    assert outcomes[0] == outcomes[1] == outcomes[2]


PLAIN = {
    "update": {"reduce": {"n": "count(*)", "total": "sum(x)"}, "emit": {"on": "update"}},
    "time_limit": {"reduce": "latest", "select": {"x": "x"}, "emit": {"on": "time_limit", "after": "5ms"}},
    "threshold": {"reduce": "collect", "select": {"x": "x"}, "emit": {"on": "threshold", "count": 2}},
    "window_close": {
        "reduce": {"n": "count(*)", "total": "sum(x)"},
        "window": {"tumbling": "5ms"},
        "emit": {"on": "window_close"},
    },
}
LIMITED = {"on": "time_limit", "after": "5ms", "buffer": {"max_records": 1}}


@pytest.mark.parametrize("stage", PLAIN.values(), ids=PLAIN.keys())
def test_only_keys_with_special_rows_take_the_loop(
    stage: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[set[str]] = []

    class Watched(decision.Loop):
        def __init__(self, *arguments: Any) -> None:
            taken.append(set(arguments[2].column("key").to_pylist()))
            super().__init__(*arguments)

    monkeypatch.setattr(decision, "Loop", Watched)
    loop = Recorded(Case({"name": "out", **stage}), arrow_rows=40)
    repeated = stage["reduce"] == "latest"  # of which a deletion is nothing special
    special = record("b", 2) if repeated else replace(record("b", 3), value=None)
    loop.apply(Batch((record("a", 1), record("b", 2), record("a", 4))))
    assert not taken
    loop.apply(Batch((special, record("a", 5), record("b", 6))))
    assert taken
    assert set.union(*taken) == {"b"}


def record(key: str, offset: int) -> Record:
    return Record(key, {"x": 1.0, "s": "p", "i": 1, "d": None, "m": None}, "in", 0, offset, offset)


def test_only_partitions_with_special_rows_take_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[set[int]] = []

    class Watched(decision.Loop):
        def __init__(self, *arguments: Any) -> None:
            taken.append(set(arguments[2].column("partition").to_pylist()))
            super().__init__(*arguments)

    monkeypatch.setattr(decision, "Loop", Watched)
    stage = {"name": "out", "reduce": "latest", "select": {"x": "x"}, "emit": LIMITED}
    loop = Recorded(Case(stage), arrow_rows=40, compacting=True)
    elsewhere = replace(record("a", 1), partition=1)
    deletion = replace(record("a", 4), value=None)
    loop.apply(Batch((record("a", 1), record("b", 2), record("c", 3), deletion, elsewhere)))
    assert loop.counts["buffer-evict"] > 1
    assert not taken
    loop.apply(Batch((record("a", 4), record("b", 6), replace(elsewhere, offset=2))))
    assert set.union(*taken) == {0}


def test_full_buffer_evicts_the_earliest_due_entry() -> None:
    stage = {"name": "out", "reduce": "latest", "select": {"x": "x"}, "emit": LIMITED}
    times = {"c": 0, "b": 2**60, "a": 2**61, "d": 0, "e": 2**61}
    records = [
        replace(record(key, offset), timestamp=timestamp)
        for offset, (key, timestamp) in enumerate(times.items(), start=1)
    ]
    assert_both_ways_alike(Case(stage), [Batch(tuple(records))], arrow_rows=40, compacting=True)
