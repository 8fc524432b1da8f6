"""A replay: its records are taken as new, whatever their offsets, and what repeats itself is still known."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch
from tests.kernel.model.records import Record
from tests.kernel.model.strategies import Case, cases, logs
from tests.kernel.test_against_model import by_key, counted, filled
from tidegate.formats.records import replayed_topic

FAR = 1_000


def parts(log: Sequence[Sequence[Record]], data: st.DataObject) -> list[list[Record]]:
    """Return the records before a replay, its records, and the records after it."""
    first = data.draw(st.integers(0, len(log)))
    second = data.draw(st.integers(first, len(log)))
    return [list(itertools.chain(*part)) for part in (log[:first], log[first:second], log[second:])]


def from_quarantine(records: Iterable[Record]) -> Batch:
    """Return a batch of quarantined records: before all others of their partitions, each with a root of
    the replay.
    """
    return Batch(
        tuple(
            replace(
                record,
                offset=record.offset - FAR,
                source=f"{replayed_topic(record.topic, 2)}/{record.partition}/{record.offset}",
            )
            for record in records
        )
    )


def outcome(kernel: Kernel, history: Iterable[tuple[Batch, bool]]) -> Any:
    for batch, is_replay in history:
        if filled(_Once(kernel, is_replay), [batch]):
            return "full"
    counts = counted(kernel.counts)
    return repr((by_key(kernel.emissions), counts, sorted(map(repr, kernel.live()))))


class _Once:
    """A runner for `filled`."""

    def __init__(self, kernel: Kernel, is_replay: bool) -> None:
        self.apply = lambda batch: kernel.apply(batch, replay=is_replay)


@examples(60)
@given(cases(deduplicates=["offset"]), logs(one_partition_per_key=True), st.data(), st.integers(0, 90))
def test_replayed_record_follows_all_records_read(
    case: Case, log: Sequence[Sequence[Record]], data: st.DataObject, clock: int
) -> None:
    before, again, after = parts(log, data)
    ends = (Batch(tuple(before), clock), False), (Batch(tuple(after), clock + 5), False)
    as_new = outcome(Kernel(case), [ends[0], (Batch(tuple(again)), False), ends[1]])
    assert outcome(Kernel(case), [ends[0], (from_quarantine(again), True), ends[1]]) == as_new


@examples(60)
@given(
    cases(emits=["update"], windows=[None], deduplicates=["root"]),
    logs(one_partition_per_key=True),
    st.data(),
)
def test_replay_by_root_changes_no_repetition(
    case: Case, log: Sequence[Sequence[Record]], data: st.DataObject
) -> None:
    before, again, after = parts(log, data)
    without, kernel = Kernel(case), Kernel(case)
    for runner in (without, kernel):
        runner.apply(Batch(tuple(before)))
    ignored = kernel.counts["used"] + kernel.counts["deduplicated"]
    kernel.apply(from_quarantine(again), replay=True)
    assert kernel.counts["deduplicated"] == without.counts["deduplicated"], "all of it is used"
    assert kernel.counts["used"] + kernel.counts["deduplicated"] == ignored + len(again)
    for runner in (without, kernel):
        runner.apply(Batch(tuple(after)))
    assert kernel.counts["deduplicated"] == without.counts["deduplicated"]
