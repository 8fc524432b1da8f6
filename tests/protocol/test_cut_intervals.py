"""However `max_records` or an open transaction cuts an interval: the emissions are those of one batch.

The real ranges, plans and kernel, without Spark or a broker. A key's records are in one partition: those of
several are merged by their timestamps within a batch, so that there the cut is a part of the input.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.kernel_for_tests import Kernel
from tests.core.model import Batch, Record
from tests.core.model.records import Partition
from tests.core.model.strategies import EMITS, HOMES, Case, cases, logs
from tests.core.test_against_model import by_key, counted, filled
from tidegate import core, errors
from tidegate.broker.log import TopicView
from tidegate.ledger import Head, OffsetRange, Plan, Stream
from tidegate.protocol.ranges import plan_ranges

STREAM = Stream("p", 1)
PARTITIONS = sorted(set(HOMES))
Offsets = Mapping[Partition, int]


@pytest.fixture(scope="module", autouse=True)
def _functions_of_the_tests_may_be_called() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_PYTHON_MODULES", "tests.core.model.equivalences")
        yield


@dataclass(frozen=True)
class Trigger:
    """Of one batch: its clock, where its interval ends, and what keeps it from reading all of that."""

    clock: int
    upper: Offsets
    max_records: int | None = None
    stable_ends: Offsets | None = None


class Backlog:
    """A log that is there, and the head of who reads it."""

    def __init__(self, log: Sequence[Sequence[Record]]) -> None:
        self.records = [record for group in log for record in group]
        self.ends = _ends(self.records)
        self.plans: list[Plan] = []
        self.head = Head(STREAM)

    def plan(self, trigger: Trigger) -> Plan:
        """The next batch's plan, which is committed at once."""
        ranges = plan_ranges(self.head, self._views(trigger), {}, trigger.upper, trigger.max_records)
        clocks = self.head.clocks_of((each.topic, each.partition) for each in ranges)
        seq = self.head.seq + 1
        plan = Plan(STREAM, seq, f"r{seq}", trigger.clock, 0, ranges, {}, "", "", clocks=clocks)
        self.head = Head(STREAM, seq, plan.ends, clocks=plan.clocks_after)
        self.plans.append(plan)
        return plan

    def read(self, ranges: Iterable[OffsetRange]) -> tuple[Record, ...]:
        """What is in the ranges."""
        spans = {(each.topic, each.partition): range(each.start, each.end) for each in ranges}
        return tuple(record for record in self.records if record.offset in spans[record.home])

    def _views(self, trigger: Trigger) -> list[TopicView]:
        return [
            TopicView(
                topic,
                "id",
                dict.fromkeys(partitions, 0),
                {each: (trigger.stable_ends or self.ends)[topic, each] for each in partitions},
                {each: self.ends[topic, each] for each in partitions},
            )
            for topic, homes in itertools.groupby(PARTITIONS, key=lambda home: home[0])
            for partitions in [[partition for _, partition in homes]]
        ]


def _ends(records: Iterable[Record]) -> dict[Partition, int]:
    ends = dict.fromkeys(PARTITIONS, 0)
    for record in records:
        ends[record.home] = max(ends[record.home], record.offset + 1)
    return ends


@st.composite
def intervals(draw: st.DrawFn, log: Sequence[Sequence[Record]]) -> list[Trigger]:
    """One to three intervals, one after the other; their clocks mostly rise."""
    last = draw(st.integers(0, 2))
    bounds = [*sorted(draw(st.lists(st.integers(0, len(log)), min_size=last, max_size=last))), len(log)]
    clocks = draw(st.lists(st.integers(0, 90), min_size=len(bounds), max_size=len(bounds)))
    clocks = sorted(clocks) if draw(st.sampled_from([True, True, False])) else clocks
    return [
        Trigger(clock, _ends(record for group in log[:bound] for record in group))
        for clock, bound in zip(clocks, bounds, strict=True)
    ]


@st.composite
def limited(draw: st.DrawFn, trigger: Trigger) -> Trigger:
    """The same with a limit, or with open transactions in some partitions."""
    most = draw(st.none() | st.integers(1, 9))
    stable = None
    if most is None or draw(st.booleans()):
        stable = {home: draw(st.integers(0, end)) for home, end in trigger.upper.items()}
    return Trigger(trigger.clock, trigger.upper, most, stable)


def planned_in_parts(backlog: Backlog, triggers: Iterable[Trigger], data: st.DataObject) -> Iterator[Plan]:
    """Each interval in so many batches, until one reads to its end."""
    for trigger in triggers:
        for number in itertools.count():
            plan = backlog.plan(data.draw(limited(trigger)) if number < 6 else trigger)
            yield plan
            if not plan.cut_partitions:
                break


def decided(case: Case, backlog: Backlog, plans: Iterable[Plan]) -> Kernel | None:
    """All that comes of it; nothing if a bounded buffer was full."""
    kernel = Kernel(case, sparing=True)
    try:
        for plan in plans:
            kernel.decide(backlog.read(plan.ranges), as_batch(plan))
    except errors.BufferFull:
        return None
    return kernel


def shown(kernel: Kernel | None) -> str:
    """To be compared: NaN equals NaN."""
    if kernel is None:
        return "full"
    return repr((by_key(kernel.emissions), counted(kernel.counts), kernel.buffered()))


def as_batch(plan: Plan) -> core.Batch:
    """As `compute_batch` has it."""
    return core.Batch({}, plan.clock_ms, plan.least_clock, plan.clocks, plan.cut_partitions)


@pytest.mark.parametrize("on", EMITS)
@settings(max_examples=50, deadline=None)
@given(log=logs(one_partition_per_key=True), data=st.data())
def test_an_interval_that_is_cut_gives_the_emissions_of_one_that_is_not(
    on: str, log: Sequence[Sequence[Record]], data: st.DataObject
) -> None:
    case, triggers = data.draw(cases(emits=[on])), data.draw(intervals(log))
    whole, cut = Backlog(log), Backlog(log)
    expected = decided(case, whole, map(whole.plan, triggers))
    assert shown(decided(case, cut, planned_in_parts(cut, triggers, data))) == shown(expected)


@settings(max_examples=100, deadline=None)
@given(cases(), logs(one_partition_per_key=True), st.data())
def test_what_is_left_of_an_interval_belongs_to_the_next_one_whoever_runs_it(
    case: Case, log: Sequence[Sequence[Record]], data: st.DataObject
) -> None:
    """Each partition is as if it were alone, and had one batch per clock that was applied to it."""
    backlog = Backlog(log)
    triggers = [data.draw(limited(each)) for each in data.draw(intervals(log))]
    emitted = decided(case, backlog, map(backlog.plan, triggers))
    kernels = [Kernel(case) for _ in PARTITIONS]
    full = [filled(kernel, _history(backlog, home)) for kernel, home in zip(kernels, PARTITIONS, strict=True)]
    assert (emitted is None) == any(full)
    if emitted is not None:
        alone = by_key(each for kernel in kernels for each in kernel.emissions)
        assert repr(by_key(emitted.emissions)) == repr(alone)


def _history(backlog: Backlog, home: Partition) -> Iterator[Batch]:
    unread: list[Record] = []
    for plan in backlog.plans:
        own = [each for each in plan.ranges if (each.topic, each.partition) == home]
        records = backlog.read(plan.ranges)
        unread += [record for record in records if record.home == home]
        if not own[0].is_cut:
            yield Batch(tuple(unread), plan.clock_ms)
            unread = []
    yield Batch(tuple(unread))
