"""What compaction leaves out changes nothing: not what goes out, not what is counted or held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.equivalences import below
from tests.kernel.model.strategies import Case, cases, histories
from tests.kernel.test_against_model import by_key, filled
from tidegate import kernel

DELETED = [Record("k", {"x": 1.0}, "in", 0, 1, 5, None, 0), Record("k", None, "in", 0, 2, 6, None, 0)]
LATEST = {"name": "out", "reduce": "latest", "select": {"x": "x"}}


def outcome(loop: Kernel, batches: Sequence[Batch], drained: bool = False) -> str:
    """Return all results of a history, with the state as a reader sees it."""
    if filled(loop, batches, drained):
        return "full"
    counts = {name: number for name, number in loop.counts.items() if number}
    state = sorted(map(repr, loop.newest_live()))
    return repr((by_key(loop.emissions), sorted(counts.items()), loop.buffered(), state))


def read_once(batches: Sequence[Batch]) -> list[Batch]:
    """The history as Kafka gives it: no offset below the head comes again."""
    head: dict[tuple[str, int], int] = {}
    batches_once = []
    for batch in batches:
        records = tuple(record for record in batch.records if record.offset > head.get(record.home, -1))
        batches_once.append(replace(batch, records=records))
        for record in records:
            head[record.home] = max(record.offset, head.get(record.home, -1))
    return batches_once


@examples(100)
@given(cases(), histories(), st.booleans(), st.booleans())
def test_snapshot_after_every_batch_changes_nothing(
    case: Case, batches: Sequence[Batch], sparing: bool, drained: bool
) -> None:
    batches = read_once(batches)
    as_it_is = outcome(Kernel(case, sparing=sparing), batches, drained)
    compacted = Kernel(case, sparing=sparing, compacting=True)
    assert outcome(compacted, batches, drained) == as_it_is
    assert len(compacted.state) <= len({compacted._entry(row) for row in compacted.state})


@examples(50)
@given(cases(windows=[{"tumbling": "12ms"}, {"session": "10ms"}]), histories())
def test_of_windows_that_are_over_nothing_is_left(case: Case, batches: Sequence[Batch]) -> None:
    loop = Kernel(case, compacting=True)
    if outcome(loop, batches) != "full":
        assert all(row["due_at"] is not None for row in loop.state)


@pytest.mark.parametrize(("rule", "rows"), [("offset", 0), ("root", 1)])
@pytest.mark.parametrize("on", ["update", "change"])
def test_deleted_key_expires_unless_its_root_can_return(on: str, rule: str, rows: int) -> None:
    loop = Kernel(replace(Case({**LATEST, "emit": {"on": on}}), deduplicate=rule), compacting=True)
    for record in DELETED:
        loop.apply(Batch((record,)))
    assert [emission.value for emission in loop.emissions] == [{"x": 1.0}, None]
    assert len(loop.state) == rows


def test_repeated_values_expire_after_their_time() -> None:
    assert kernel.live_rows_suffice(kernel.Stage(kernel.Latest(), kernel.Once(10)))


EVENTS = [Record("k", {"x": float(at)}, "in", 0, at, at, None, 0) for at in (1, 2)]
COLLECT = {"reduce": "collect", "select": {"x": "x"}}
SUM = {"reduce": {"total": "sum(x)"}}
BY_COUNT = {"on": "threshold", "count": 2}
SINCE_FLUSH = {**BY_COUNT, "after": "60s", "since": "last_flush"}


@pytest.mark.parametrize(
    ("reduce", "emit", "rule", "live", "rows"),
    [
        (COLLECT, BY_COUNT, "offset", 0, 0),
        (COLLECT, BY_COUNT, "root", 0, 1),  # a record of the same root may come again
        (COLLECT, SINCE_FLUSH, "offset", 1, 1),  # the next flush counts from the last one
        (COLLECT, {"on": "update"}, "offset", 0, 0),
        (COLLECT, {"on": "interval", "every": "1ms"}, "offset", 0, 0),
        (COLLECT, {"on": "time_limit", "after": "1ms"}, "offset", 0, 0),
        (SUM, BY_COUNT, "offset", 0, 0),
        (SUM, BY_COUNT, "root", 0, 1),
        (SUM, SINCE_FLUSH, "offset", 1, 1),
        (SUM, {"on": "time_limit", "after": "1ms"}, "offset", 1, 1),  # a sum goes on
        (LATEST, BY_COUNT, "offset", 1, 1),  # a deletion goes out if the key has
        (LATEST, {"on": "interval", "every": "1ms"}, "offset", 1, 1),
    ],
)
def test_key_without_waiting_records_keeps_little_state(
    reduce: dict[str, Any], emit: dict[str, Any], rule: str, live: int, rows: int
) -> None:
    loop = Kernel(Case({"name": "out", **reduce, "emit": emit}, deduplicate=rule), compacting=True)
    loop.apply(Batch(tuple(EVENTS), 100))
    assert (len(loop.emissions) > 0, loop.buffered().records) == (True, 0)
    assert (len(loop.live()), loop.counts["state-rows"], len(loop.state)) == (live, live, rows)


@pytest.mark.parametrize(
    ("reduce", "emit", "records"),
    [
        (COLLECT, BY_COUNT, EVENTS),
        (SUM, BY_COUNT, EVENTS),
        (LATEST, {"on": "interval", "every": "1ms"}, DELETED),
    ],
)
def test_later_session_forgets_emitted_one_with_any_snapshot(
    reduce: dict[str, Any], emit: dict[str, Any], records: list[Record]
) -> None:
    case = Case({"name": "out", **reduce, "emit": emit})
    kernels = Kernel(case), Kernel(case, compacting=True)
    for loop in kernels:
        for record in records:
            loop.apply(Batch((record,), 100))
        assert loop.newest_live() == []
        loop.apply(Batch((Record("k", {"x": 3.0}, "in", 0, 3, 200, None, 0),), 100))
    state, compacted = (loop.newest_live() for loop in kernels)
    assert state == compacted
    assert [row["emitted_timestamp"] for row in state] == [None]


def test_window_closed_by_another_partition_survives_no_deletion() -> None:
    """The deletion leaves nothing of its own: the same value in that window is new again."""
    window = {"tumbling": "10ms", "grace": "5ms"}
    case = Case({**LATEST, "window": window, "emit": {"on": "change", "clock": "stream"}})
    loop, model = Kernel(case), case.model()
    value = {"x": 1.0}
    for records in (
        [Record("k", value, "in", 1, 0, 3, None, 0)],
        [Record("other", value, "in", 0, 0, 15, None, 0)],
        [Record("k", None, "in", 0, 1, 1, None, 0), Record("k", None, "in", 1, 1, 3, None, 0)],
        [Record("k", value, "in", 1, 2, 4, None, 0)],
    ):
        loop.apply(Batch(tuple(records)))
        model.apply(Batch(tuple(records)))
    assert [emission.reason for emission in loop.emissions if emission.key == "k"] == ["new", "new"]
    assert loop.live() == model.live() == {("k", (0, 10)), ("other", (10, 20))}


@pytest.mark.parametrize("on", ["threshold", "interval", "time_limit", "quiet"])
def test_a_deletion_that_has_gone_out_leaves_nothing(on: str) -> None:
    options = {"threshold": {"count": 1}, "interval": {"every": "1ms"}, "time_limit": {"after": "1ms"}}
    options["quiet"] = {"after": "1ms"}
    loop = Kernel(Case({**LATEST, "emit": {"on": on, **options[on]}}), compacting=True)
    for record in DELETED:
        loop.apply(Batch((record,), 100))
    assert [emission.value for emission in loop.emissions] == [{"x": 1.0}, None]
    assert loop.state == []


def test_key_that_where_never_emits_counts_once() -> None:
    where = "x < 0"
    case = Case({**LATEST, "emit": {"on": "update"}, "where": where}, conditions={where: below("x", 0)})
    loop = Kernel(case)
    for event in (*EVENTS, Record("k", {"x": 3.0}, "in", 0, 3, 3, None, 0)):
        loop.apply(Batch((event,)))
        assert loop.counts["state-rows"] == len(loop.live()) == 1
    loop.apply(Batch((Record("k", None, "in", 0, 4, 4, None, 0),)))
    assert loop.counts["state-rows"] == len(loop.live()) == 0


@examples(300)
@given(cases(), histories(), st.booleans(), st.booleans())
def test_counted_state_rows_equal_reader_and_model(
    case: Case, batches: Sequence[Batch], sparing: bool, compacting: bool
) -> None:
    if compacting:
        batches = read_once(batches)
    loop, model = Kernel(case, sparing=sparing, compacting=compacting), case.model()
    for batch in batches:
        if filled(loop, [batch]) | filled(model, [batch]):
            return
        assert loop.counts["state-rows"] == len(loop.newest_live())
        assert loop.live() == model.live()
