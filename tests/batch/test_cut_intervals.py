"""However `max_records` or an open transaction cuts an interval: the emissions are those of one batch.

The real ranges, plans and kernel, without Spark or a broker; as in production, an interval without records
has no batch where nothing waits for its clock. A key's records are in one partition: those of
several are merged by their timestamps within a batch, so that there the cut is a part of the input.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel, pipeline_of
from tests.kernel.model import Batch, Record
from tests.kernel.model.records import Partition
from tests.kernel.model.strategies import EMITS, HOMES, Case, cases, logs
from tests.kernel.test_against_model import by_key, counted, filled
from tests.manifests import manifest_ref
from tidegate import errors, kernel
from tidegate.batch.offsets import limit_span, plan_ranges
from tidegate.batch.plan import clock_may_fire
from tidegate.kafka.log import TopicView
from tidegate.ledger import Attempt, Head, OffsetRange, Plan, Stream

STREAM = Stream("p", 1)
PARTITIONS = sorted(set(HOMES))
Offsets = Mapping[Partition, int]


@pytest.fixture(scope="module", autouse=True)
def _functions_of_the_tests_may_be_called() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_PYTHON_MODULES", "tests.kernel.model.equivalences")
        yield


@dataclass(frozen=True)
class Trigger:
    """The trigger of one batch: its clock, the end of its interval, and limits that keep it from reading
    all of it.
    """

    clock: int
    upper: Offsets
    max_records: int | None = None
    stable_ends: Offsets | None = None


class Backlog:
    """A log that is there, and the head of who reads it."""

    def __init__(self, case: Case, log: Sequence[Sequence[Record]], skips: bool = True) -> None:
        """`skips`: an interval without records has no batch where nothing waits for its clock."""
        self.skips = skips
        self.kernel = Kernel(case, sparing=True)
        self.pipeline = pipeline_of(case, self.kernel.source)
        self.records = [record for group in log for record in group]
        self.ends = _ends(self.records)
        self.plans: list[Plan] = []
        """Also of intervals that have no batch."""
        self.head = Head(STREAM)

    def run(self, trigger: Trigger) -> Plan:
        """The next batch, if there is one: planned, decided and committed at once."""
        ranges = plan_ranges(self.head, self._views(trigger), {}, trigger.upper)
        ranges = limit_span(ranges, trigger.max_records)
        clocks = self.head.clocks_of((offset_range.topic, offset_range.partition) for offset_range in ranges)
        seq = self.head.seq + 1
        plan = Plan(STREAM, seq, f"r{seq}", trigger.clock, 0, ranges, {}, "", "", clocks=clocks)
        self.plans.append(plan)
        counts = {self.pipeline.stages[0].name: self.kernel.counts}
        before = Attempt(STREAM, self.head.seq, manifest_ref("before"), counts)
        may_fire = not self.skips or clock_may_fire(self.pipeline, plan, before)
        if plan.span or not self.head.seq or may_fire:
            self.kernel.decide(self.read(plan.ranges), as_batch(plan))
            self.head = Head(STREAM, seq, plan.ends, clocks=plan.clocks_after)
        else:
            self.head = replace(self.head, clocks=plan.clocks_after)
        return plan

    def read(self, ranges: Iterable[OffsetRange]) -> tuple[Record, ...]:
        """Return the records in the ranges."""
        spans = {
            (offset_range.topic, offset_range.partition): range(offset_range.start, offset_range.end)
            for offset_range in ranges
        }
        return tuple(record for record in self.records if record.offset in spans[record.home])

    def _views(self, trigger: Trigger) -> list[TopicView]:
        return [
            TopicView(
                topic,
                "id",
                dict.fromkeys(partitions, 0),
                {partition: (trigger.stable_ends or self.ends)[topic, partition] for partition in partitions},
                {partition: self.ends[topic, partition] for partition in partitions},
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
    """One to five intervals, one after the other, some of them without records; their clocks mostly rise."""
    last = draw(st.integers(0, 4))
    bounds = [*sorted(draw(st.lists(st.integers(0, len(log)), min_size=last, max_size=last))), len(log)]
    bounds = [bound for bound in bounds for _ in range(draw(st.sampled_from([1, 1, 2])))]
    clocks = draw(st.lists(st.integers(0, 90), min_size=len(bounds), max_size=len(bounds)))
    clocks = sorted(clocks) if draw(st.sampled_from([True, True, False])) else clocks
    return [
        Trigger(clock, _ends(record for group in log[:bound] for record in group))
        for clock, bound in zip(clocks, bounds, strict=True)
    ]


@st.composite
def limited(draw: st.DrawFn, trigger: Trigger) -> Trigger:
    """Draw a limit for a trigger, or open transactions in some partitions."""
    most = draw(st.none() | st.integers(1, 9))
    stable = None
    if most is None or draw(st.booleans()):
        stable = {home: draw(st.integers(0, end)) for home, end in trigger.upper.items()}
    return Trigger(trigger.clock, trigger.upper, most, stable)


def run_in_parts(backlog: Backlog, triggers: Sequence[Trigger], data: st.DataObject) -> None:
    """Each interval in so many batches, until one reads to its end, or leaves the rest to a later interval
    that has no records of its own.
    """
    for trigger, later in itertools.zip_longest(triggers, triggers[1:]):
        is_last = later is None or later.upper != trigger.upper or later.clock < trigger.clock
        for number in itertools.count():
            plan = backlog.run(data.draw(limited(trigger)) if number < 6 else trigger)
            if not plan.cut_partitions or not (is_last or data.draw(st.booleans())):
                break


def is_full(run: Callable[[], object]) -> bool:
    """Whether a bounded buffer was full."""
    try:
        run()
    except errors.BufferFull:
        return True
    return False


def shown(loop: Kernel, full: bool) -> str:
    """Return a text that can be compared: NaN equals NaN."""
    if full:
        return "full"
    return repr((by_key(loop.emissions), counted(loop.counts), loop.buffered()))


def as_batch(plan: Plan) -> kernel.Batch:
    """Return the kernel's batch of a plan, as `compute_batch` makes it."""
    return kernel.Batch({}, plan.clock_ms, plan.least_clock, plan.clocks, plan.cut_partitions)


@pytest.mark.parametrize("on", EMITS)
@examples(50)
@given(log=logs(one_partition_per_key=True), data=st.data())
def test_cut_interval_gives_the_emissions_of_an_uncut(
    on: str, log: Sequence[Sequence[Record]], data: st.DataObject
) -> None:
    case, triggers = data.draw(cases(emits=[on])), data.draw(intervals(log))
    whole, cut = Backlog(case, log), Backlog(case, log)
    expected = is_full(lambda: [whole.run(trigger) for trigger in triggers])
    full = is_full(lambda: run_in_parts(cut, triggers, data))
    assert shown(cut.kernel, full) == shown(whole.kernel, expected)


@examples(300)
@given(cases(clocks=["run"]), logs(one_partition_per_key=True), st.data())
def test_interval_without_records_acts_as_empty_batch(
    case: Case, log: Sequence[Sequence[Record]], data: st.DataObject
) -> None:
    triggers = [data.draw(limited(trigger)) for trigger in data.draw(intervals(log))]
    outcomes = []
    for skips in (False, True):
        backlog = Backlog(case, log, skips)
        full = is_full(lambda backlog=backlog: [backlog.run(trigger) for trigger in triggers])  # type: ignore[misc]
        outcomes.append(shown(backlog.kernel, full))
    assert outcomes[0] == outcomes[1]


@examples(100)
@given(cases(), logs(one_partition_per_key=True), st.data())
def test_rest_of_an_interval_belongs_to_the_next(
    case: Case, log: Sequence[Sequence[Record]], data: st.DataObject
) -> None:
    """Each partition is as if it were alone, and had one batch per clock that was applied to it."""
    backlog = Backlog(case, log)
    triggers = [data.draw(limited(trigger)) for trigger in data.draw(intervals(log))]
    was_full = is_full(lambda: [backlog.run(trigger) for trigger in triggers])
    kernels = [Kernel(case) for _ in PARTITIONS]
    full = [filled(loop, _history(backlog, home)) for loop, home in zip(kernels, PARTITIONS, strict=True)]
    assert was_full == any(full)
    if not was_full:
        alone = by_key(emission for loop in kernels for emission in loop.emissions)
        assert repr(by_key(backlog.kernel.emissions)) == repr(alone)


def _history(backlog: Backlog, home: Partition) -> Iterator[Batch]:
    unread: list[Record] = []
    for plan in backlog.plans:
        own = [
            offset_range
            for offset_range in plan.ranges
            if (offset_range.topic, offset_range.partition) == home
        ]
        records = backlog.read(plan.ranges)
        unread += [record for record in records if record.home == home]
        if not own[0].is_cut:
            yield Batch(tuple(unread), plan.clock_ms)
            unread = []
    yield Batch(tuple(unread))
