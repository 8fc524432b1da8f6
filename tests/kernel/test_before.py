"""Before images: each emission tells what it replaces, whatever the stage, and however its history is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import WINDOWS, Case, cases, histories
from tests.kernel.model.values import same
from tests.kernel.test_against_model import filled
from tests.kernel.test_columns import FEEDING, HISTORIES, record_by_record
from tidegate import errors, kernel

OVER_FOR_GOOD = [window for window in WINDOWS if window is None or "session" not in window]
"""At the instant of its end a session is over, and yet a record is not late for it, which begins it anew."""
ONE_PARTITION_PER_KEY = st.one_of(histories(True), histories(True, nulls=False))


class Telling(Kernel):
    """A kernel that tells what emissions replace; `told` are its emissions as rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.emitted_rows: list[dict[str, Any]] = []
        self.stage = replace(self.stage, tells_before=self.stage.remembers_emitted)

    def _decide(self, records: Sequence[dict[str, Any]], batch: kernel.Batch) -> None:
        before = list(self.state)
        super()._decide(records, batch)
        after, self.state = self.state, before
        rows = self._sorted([*self._looked_up(records, batch), *records])
        for decided in kernel.decide(self.stage, rows, batch):
            emissions = [row for row in decided.to_pylist() if row["kind"] == kernel.EMISSION]
            self.emitted_rows += [{**row, "batch": self.seq} for row in emissions]
        self.state = after


def applied(case: Case, batches: Sequence[Batch], **feeding: Any) -> Telling:
    loop = Telling(case, **feeding)
    assume(loop.stage.tells_before)
    try:
        assume(not filled(loop, batches))
    except errors.RecordFailed:
        assume(False)
    return loop


def assert_each_replaces_the_one_before(loop: Telling) -> None:
    emitted: dict[Any, Any] = {}
    # a time to live that emits nothing lets an entry begin anew
    may_begin_anew = loop.stage.ttl is not None and loop.stage.ttl.emit == "nothing"
    for row in loop.emitted_rows:
        entry = (row["key"], row["window_start"], row["window_end"])
        is_new = may_begin_anew and row["emitted"] is None
        assert is_new or same(row["emitted"], emitted.get(entry)), row
        emitted[entry] = row["value"]


def assert_before_is_the_models(case: Case, batches: Sequence[Batch], loop: Telling) -> None:
    """Compare with the model, which has a window that is over in one partition and begins anew in another."""
    model = case.model()
    assert not filled(model, batches)
    expected = sorted(zip(model.emissions, model.out.before, strict=True), key=lambda pair: pair[0].key)
    rows = sorted(loop.emitted_rows, key=lambda row: (row["key"], row["batch"], row["ordinal"]))
    for row, (emission, before) in zip(rows, expected, strict=True):
        assert same(row["value"], emission.value), row
        assert same(row["emitted"], before), f"{row} instead of {before}"


@examples(50)
@given(cases(windows=OVER_FOR_GOOD), ONE_PARTITION_PER_KEY, FEEDING)
def test_an_emission_tells_what_its_entry_emitted_before(
    case: Case, batches: list[Batch], feeding: dict[str, Any]
) -> None:
    assert_each_replaces_the_one_before(applied(case, batches, **feeding))


@examples(10)
@given(cases(windows=OVER_FOR_GOOD), ONE_PARTITION_PER_KEY, FEEDING)
def test_so_it_does_record_by_record(case: Case, batches: list[Batch], feeding: dict[str, Any]) -> None:
    with record_by_record():
        assert_each_replaces_the_one_before(applied(case, batches, **feeding))


@examples(50)
@given(cases(), HISTORIES, FEEDING)
def test_emission_over_partitions_has_the_models_previous(
    case: Case, batches: list[Batch], feeding: dict[str, Any]
) -> None:
    feeding = feeding | {"compacting": False}  # what it forgets, the model remembers
    assert_before_is_the_models(case, batches, applied(case, batches, **feeding))


def _record(key: str, partition: int, offset: int, timestamp: int) -> Record:
    value = {"x": 1.0, "s": "p", "i": 1, "d": None, "m": None}
    return Record(key, value, "in", partition, offset, timestamp)


@pytest.mark.parametrize("cut", [1, 6], ids=["six batches", "one batch"])
@pytest.mark.parametrize("window", [{"tumbling": "10ms"}, {"hopping": "10ms", "every": "10ms"}])
def test_window_over_in_one_partition_restarts_in_another(window: dict[str, str], cut: int) -> None:
    """Partition 0 ends the window [0, 10) and its state; partition 1, which is behind, opens it again."""
    emit = {"on": "update", "clock": "stream"}
    stage = {"name": "out", "reduce": {"n": "count(*)"}, "window": window | {"grace": "0ms"}, "emit": emit}
    records = [
        _record("k", 0, 1, 1),
        _record("k", 0, 2, 2),
        _record("another", 0, 3, 12),
        _record("k", 0, 4, 3),  # too late: the window ends with it
        _record("k", 1, 1, 4),
        _record("k", 1, 2, 5),
    ]
    loop = Telling(Case(stage))
    assert not filled(loop, [Batch(tuple(records[at : at + cut])) for at in range(0, 6, cut)])
    first = [row for row in loop.emitted_rows if row["key"] == "k"]
    assert [(row["reason"], row["value"], row["emitted"]) for row in first] == [
        ("new", {"n": 1}, None),
        ("changed", {"n": 2}, {"n": 1}),
        ("new", {"n": 1}, None),
        ("changed", {"n": 2}, {"n": 1}),
    ]


LATEST = {"name": "out", "reduce": "latest", "select": {"x": "x", "s": "s"}}


@pytest.mark.parametrize(
    ("stage", "remembers"),
    [
        (LATEST | {"emit": {"on": "change"}}, True),
        (LATEST | {"emit": {"on": "change", "state": "hash"}}, False),
        (LATEST | {"reduce": "collect", "emit": {"on": "threshold", "count": 2}}, False),
        (LATEST | {"emit": {"on": "time_limit", "after": "3ms", "buffer": {"max_records": 2}}}, False),
        ({"name": "out", "reduce": {"n": "count(*)"}, "emit": {"on": "threshold", "count": 2}}, False),
        ({"name": "out", "reduce": {"n": "count(*)"}, "emit": {"on": "update"}}, True),
    ],
)
def test_only_stages_that_keep_emissions_have_before(stage: dict[str, Any], remembers: bool) -> None:
    assert Kernel(Case(stage)).stage.remembers_emitted is remembers
