"""What compaction leaves out changes nothing: not what goes out, not what is counted or held back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.kernel_for_tests import Kernel
from tests.core.model import Batch, Record
from tests.core.model.strategies import Case, cases, histories
from tests.core.test_against_model import by_key, filled
from tidegate import core

DELETED = [Record("k", {"x": 1.0}, "in", 0, 1, 5, None, 0), Record("k", None, "in", 0, 2, 6, None, 0)]
LATEST = {"name": "out", "reduce": "latest", "select": {"x": "x"}}


@pytest.fixture(scope="module", autouse=True)
def _functions_of_the_tests_may_be_called() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_PYTHON_MODULES", "tests.core.model.equivalences")
        yield


def outcome(kernel: Kernel, batches: Sequence[Batch], drained: bool = False) -> str:
    """All that a history gives."""
    if filled(kernel, batches, drained):
        return "full"
    counts = {name: number for name, number in kernel.counts.items() if number}
    return repr((by_key(kernel.emissions), sorted(counts.items()), kernel.buffered()))


def read_once(batches: Sequence[Batch]) -> list[Batch]:
    """The history as Kafka gives it: no offset below the head comes again."""
    head: dict[tuple[str, int], int] = {}
    found = []
    for batch in batches:
        records = tuple(each for each in batch.records if each.offset > head.get(each.home, -1))
        found.append(replace(batch, records=records))
        for each in records:
            head[each.home] = max(each.offset, head.get(each.home, -1))
    return found


@settings(max_examples=100, deadline=None)
@given(cases(), histories(), st.booleans(), st.booleans())
def test_with_a_snapshot_after_every_batch_everything_is_as_without(
    case: Case, batches: Sequence[Batch], sparing: bool, drained: bool
) -> None:
    batches = read_once(batches)
    as_it_is = outcome(Kernel(case, sparing=sparing), batches, drained)
    compacted = Kernel(case, sparing=sparing, compacting=True)
    assert outcome(compacted, batches, drained) == as_it_is
    assert len(compacted.state) <= len({compacted._entry(row) for row in compacted.state})


@settings(max_examples=50, deadline=None)
@given(cases(windows=[{"tumbling": "10ms"}, {"session": "10ms"}]), histories())
def test_of_windows_that_are_over_nothing_is_left(case: Case, batches: Sequence[Batch]) -> None:
    kernel = Kernel(case, compacting=True)
    if outcome(kernel, batches) != "full":
        assert all(row["due_at"] is not None for row in kernel.state)


@pytest.mark.parametrize(("rule", "rows"), [("offset", 0), ("root", 1)])
@pytest.mark.parametrize("on", ["update", "change"])
def test_a_deleted_key_is_forgotten_unless_its_root_may_come_again(on: str, rule: str, rows: int) -> None:
    kernel = Kernel(replace(Case({**LATEST, "emit": {"on": on}}), deduplicate=rule), compacting=True)
    for record in DELETED:
        kernel.apply(Batch((record,)))
    assert [each.value for each in kernel.emissions] == [{"x": 1.0}, None]
    assert len(kernel.state) == rows


def test_repeated_values_are_forgotten_when_their_time_is_over() -> None:
    assert core.forgets_the_gone(core.Stage(core.Latest(), core.Once(10)))


def test_what_waits_without_a_window_is_never_forgotten() -> None:
    assert not core.forgets_the_gone(core.Stage(core.Latest(), core.TimeLimit(10)))
    assert not core.forgets_the_gone(core.Stage(core.Collect(), core.Threshold(2, None, None, "first_event")))
