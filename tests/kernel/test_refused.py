"""Values that break an expectation do not go out, are not remembered, and come out once each as refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.expected import at_least, none_of, not_null
from tests.kernel.model.strategies import Case, cases, cut, histories, logs
from tests.kernel.test_against_model import (
    assert_alike,
    by_key,
    counted,
    filled,
)
from tests.kernel.test_columns import FEEDING, HISTORIES, record_by_record
from tidegate import kernel
from tidegate.kernel import decision


@examples(60)
@given(cases(expecting=True), st.data(), st.integers(1, 7), st.booleans(), st.booleans())
def test_kernel_with_expectations_equals_the_model(
    case: Case, data: st.DataObject, arrow_rows: int, sparing: bool, drained: bool
) -> None:
    one_partition_per_key = data.draw(st.booleans())
    batches = data.draw(histories(one_partition_per_key))
    loop, model = Kernel(case, arrow_rows, sparing), case.model()
    full = filled(model, batches, drained)
    assert filled(loop, batches, drained) == full
    if not full:
        assert_alike(loop, model, one_partition_per_key or not model.settings.bounded)
        assert loop.counts["refused"] == len(loop.refused)


@examples(25)
@given(cases(clocks=["stream"], expecting=True), logs(one_partition_per_key=True), st.data())
def test_stream_clock_refusals_do_not_depend_on_cuts(
    case: Case, log: Sequence[Any], data: st.DataObject
) -> None:
    whole = [Batch(tuple(itertools.chain(*log)))]
    outcomes = []
    for batches in (whole, [Batch(tuple(group)) for group in log], data.draw(cut(log))):
        loop = Kernel(case)
        full = filled(loop, batches)
        outcome = (by_key(loop.emissions), by_key(loop.refused), counted(loop.counts))
        outcomes.append("full" if full else repr(outcome))
    assert outcomes[0] == outcomes[1] == outcomes[2]


ON_COLUMNS = [{"on": "update"}, {"on": "change"}, {"on": "change", "equal": {"within": {"x": "10%"}}}]


@st.composite
def latest(draw: st.DrawFn) -> Case:
    stage = {"name": "out", "reduce": "latest", "select": {"x": "x", "s": "s"}}
    possible = [not_null("x"), at_least("x", 2), none_of("s", ("q",)), not_null("s")]
    expected = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=3, unique_by=id))
    return Case(stage | {"emit": draw(st.sampled_from(ON_COLUMNS))}, expectations=tuple(expected))


@examples(60)
@given(latest(), HISTORIES, FEEDING)
def test_latest_refuses_the_same_on_columns(
    case: Case, batches: list[Batch], feeding: dict[str, Any]
) -> None:
    columns, records = Kernel(case, **feeding), Kernel(case, **feeding)
    assert decision.column_kernel(columns.stage, kernel.Batch(), columns.schema.field("value").type)
    for batch in batches:
        columns.apply(batch)
        with record_by_record():
            records.apply(batch)
    assert repr(by_key(columns.emissions)) == repr(by_key(records.emissions))
    assert repr(by_key(columns.refused)) == repr(by_key(records.refused))
    assert counted(columns.counts) == counted(records.counts)
    assert repr(remembered(columns)) == repr(remembered(records))


def remembered(loop: Kernel) -> list[Any]:
    """Key, value and what last went out of each live entry."""
    rows = sorted(loop.newest_live(), key=lambda row: str(row["key"]))
    return [(row["key"], row["accumulator"], row["emitted"], row["timestamp"], row["offset"]) for row in rows]


def record(x: float | None, offset: int, key: str = "k", timestamp: int | None = None) -> Record:
    value = None if x is None else {"x": x, "s": "p", "i": 1, "d": None, "m": None}
    return Record(key, value, "in", 0, offset, offset if timestamp is None else timestamp)


def values(*numbers: float | None) -> list[Record]:
    return [record(x, offset) for offset, x in enumerate(numbers)]


def after(emit: dict[str, Any], *batches: list[Record], **stage: Any) -> Kernel:
    """A kernel that has had these batches; what it emits has to be 0 at least."""
    (column,) = stage.get("reduce", {"x": "x"})
    values_of = stage or {"reduce": "latest", "select": {"x": "x"}}
    case = Case({"name": "out", "emit": emit} | values_of, expectations=(at_least(column, 0),))
    loop = Kernel(case)
    for records in batches:
        loop.apply(Batch(tuple(records)))
    return loop


def out(loop: Kernel) -> list[Any]:
    return [emission.value and next(iter(emission.value.values())) for emission in loop.emissions]


def refused(loop: Kernel) -> list[Any]:
    return [(next(iter((refusal.value or {}).values())), refusal.position[2]) for refusal in loop.refused]


def test_refused_change_is_not_remembered() -> None:
    records = values(1.0, -1.0, 1.0, -1.0, 2.0)
    for batches in ([records], [[record] for record in records]):
        loop = after({"on": "change"}, *batches)
        assert out(loop) == [1.0, 2.0]
        assert refused(loop) == [(-1.0, 1), (-1.0, 3)]
        assert loop.counts["idempotent-update-skip"] == 1


def test_repeated_refused_value_is_refused_again() -> None:
    assert refused(after({"on": "change"}, values(-1.0, -1.0), values(-1.0))) == [
        (-1.0, 0),
        (-1.0, 1),
        (-1.0, 0),
    ]


def test_key_with_only_refused_values_is_not_deleted() -> None:
    loop = after({"on": "change"}, values(-1.0, None, 1.0, None))
    assert out(loop) == [1.0, None]
    assert [emission.reason for emission in loop.emissions] == ["new", "deleted"]


def test_update_keeps_a_refused_value_and_passes_deletions() -> None:
    loop = after({"on": "update"}, values(1.0, -1.0, None))
    assert (out(loop), refused(loop)) == ([1.0, None], [(-1.0, 1)])


def test_sum_continues_over_refused_values() -> None:
    loop = after({"on": "update"}, values(-5.0, 3.0, 4.0), reduce={"total": "sum(x)"})
    assert (out(loop), refused(loop)) == ([2.0], [(-5.0, 0), (-2.0, 1)])


@pytest.mark.parametrize(
    "emit",
    [
        {"on": "time_limit", "after": "1ms", "clock": "stream"},
        {"on": "interval", "every": "1ms", "clock": "stream"},
        {"on": "threshold", "count": 1},
    ],
    ids=["time_limit", "interval", "threshold"],
)
def test_refused_buffered_value_waits_no_more(emit: dict[str, Any]) -> None:
    later = [record(5.0, 1, "other", 40)]
    loop = after(emit, values(-1.0), later, [record(7.0, 2, timestamp=41)], [record(5.0, 3, "other", 80)])
    assert refused(loop) == [(-1.0, 0)]
    assert [emission.value for emission in loop.emissions if emission.key == "k"] == [{"x": 7.0}]


def test_a_final_value_that_is_refused_never_comes() -> None:
    emit, window = {"on": "window_close", "clock": "stream"}, {"tumbling": "10ms"}
    next_window = [record(3.0, 1, timestamp=100)]
    loop = after(emit, values(-1.0), next_window, reduce={"total": "sum(x)"}, window=window)
    assert refused(loop) == [(-1.0, 0)]
    assert loop.refused[0].window == (0, 10)
    assert not loop.emissions


def test_all_expectations_that_a_value_breaks_are_reported() -> None:
    stage = {"name": "out", "reduce": "latest", "select": {"x": "x", "s": "s"}, "emit": {"on": "change"}}
    expected = (at_least("x", 5), none_of("s", ("p",)), not_null("x"))
    for heartbeat in ({}, {"heartbeat": "1h"}):  # on columns, and record by record
        case = Case(stage | {"emit": {"on": "change", **heartbeat}}, expectations=expected)
        loop = Kernel(case)
        reasons = [
            row["reason"]
            for decided in kernel.decide(loop.stage, loop._sorted([*map(loop._row, values(1.0))]))
            for row in decided.to_pylist()
            if row["kind"] == kernel.REFUSED
        ]
        assert reasons == ["expect_column_values_to_be_between(x), expect_column_values_to_not_be_in_set(s)"]
