"""Before images: each emission tells what it replaces, whatever the stage, and however its history is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given

from tests.core.kernel_for_tests import Kernel
from tests.core.model import Batch
from tests.core.model.strategies import Case, cases
from tests.core.model.values import same
from tests.core.test_against_model import filled
from tests.core.test_columnar import FEEDING, HISTORIES, record_by_record
from tests.examples import examples
from tidegate import core, errors


@pytest.fixture(scope="module", autouse=True)
def trusted() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_PYTHON_MODULES", "tests.core.model.equivalences")
        yield


class Telling(Kernel):
    """A kernel that tells what emissions replace; `told` are its emissions as rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told: list[dict[str, Any]] = []
        self.stage = replace(self.stage, tells_before=self.stage.remembers_emitted)

    def _decide(self, records: Sequence[dict[str, Any]], batch: core.Batch) -> None:
        before = list(self.state)
        super()._decide(records, batch)
        after, self.state = self.state, before
        rows = self._sorted([*self._looked_up(records, batch), *records])
        for decided in core.decide(self.stage, rows, batch):
            self.told += [row for row in decided.to_pylist() if row["kind"] == core.EMISSION]
        self.state = after


def applied(case: Case, batches: Sequence[Batch], **feeding: Any) -> Telling:
    kernel = Telling(case, **feeding)
    assume(kernel.stage.tells_before)
    try:
        assume(not filled(kernel, batches))
    except errors.RecordFailed:
        assume(False)
    return kernel


def assert_each_replaces_the_one_before(kernel: Telling) -> None:
    held: dict[Any, Any] = {}
    for row in kernel.told:
        entry = (row["key"], row["window_start"], row["window_end"])
        assert same(row["emitted"], held.get(entry)), row
        held[entry] = row["value"]


@examples(50)
@given(cases(), HISTORIES, FEEDING)
def test_an_emission_tells_what_its_entry_emitted_before(
    case: Case, batches: list[Batch], feeding: dict[str, Any]
) -> None:
    assert_each_replaces_the_one_before(applied(case, batches, **feeding))


@examples(10)
@given(cases(), HISTORIES, FEEDING)
def test_so_it_does_record_by_record(case: Case, batches: list[Batch], feeding: dict[str, Any]) -> None:
    with record_by_record():
        assert_each_replaces_the_one_before(applied(case, batches, **feeding))


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
