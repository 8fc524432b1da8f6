"""Which offsets a batch reads: facts about interval arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.batch.offsets import check_planned, limit_span, plan_ranges
from tidegate.errors import LogTruncated, OffsetsLost, TopicRecreated
from tidegate.kafka.log import TopicView
from tidegate.ledger import Head, OffsetRange, Plan, Stream

STREAM = Stream("p", 1)


def view(start: int = 0, stable: int = 10, end: int | None = None, topic_id: str = "id") -> TopicView:
    return TopicView("t", topic_id, {0: start}, {0: stable}, {0: stable if end is None else end})


def head(offset: int | None = None) -> Head:
    if offset is None:
        return Head(STREAM)
    return Head(STREAM, 1, {("t", 0): offset}, {"t": "id"})


def only(ranges: tuple[OffsetRange, ...]) -> tuple[int, int]:
    assert len(ranges) == 1
    return ranges[0].start, ranges[0].end


def test_first_batch_starts_at_the_first_retained_record() -> None:
    assert only(plan_ranges(head(), [view(start=3)], {}, None)) == (3, 10)


def test_declared_start_applies_to_the_first_batch() -> None:
    assert only(plan_ranges(head(), [view()], {("t", 0): 7}, None)) == (7, 10)


def test_later_batches_start_at_the_head() -> None:
    assert only(plan_ranges(head(4), [view()], {}, None)) == (4, 10)


def two(first: int) -> TopicView:
    return TopicView("t", "id", {0: 0, 1: first}, {0: 10, 1: 900}, {0: 10, 1: 900})


def test_an_added_partition_starts_at_0() -> None:
    ranges = plan_ranges(head(4), [two(0)], {("t", 1): 7}, None)
    assert [(offset_range.partition, offset_range.start, offset_range.end) for offset_range in ranges] == [
        (0, 4, 10),
        (1, 0, 900),
    ]


def test_an_added_partition_that_lost_records_halts() -> None:
    with pytest.raises(OffsetsLost, match=r"t\[1\] offsets 0 to 499"):
        plan_ranges(head(4), [two(500)], {}, None)


def test_range_ends_at_the_last_stable_offset() -> None:
    assert only(plan_ranges(head(4), [view(stable=6, end=10)], {}, None)) == (4, 6)


def test_the_end_is_at_most_the_intervals() -> None:
    assert only(plan_ranges(head(4), [view()], {}, {("t", 0): 8})) == (4, 8)


def test_interval_end_below_the_head_reads_nothing() -> None:
    assert only(plan_ranges(head(4), [view()], {}, {("t", 0): 2})) == (4, 4)


@pytest.mark.parametrize(
    ("view", "upper", "most", "is_cut"),
    [
        (view(), None, None, False),
        (view(), 8, None, False),
        (view(), 8, 3, True),
        (view(stable=6, end=10), 6, None, False),
        (view(stable=6, end=10), 7, None, True),
        (view(stable=6, end=10), None, None, True),
        (view(stable=4, end=10), 3, None, False),
        (view(), 2, 1, False),
    ],
)
def test_range_is_cut_if_it_leaves_records(
    view: TopicView, upper: int | None, most: int | None, is_cut: bool
) -> None:
    ends = None if upper is None else {("t", 0): upper}
    ranges = plan_ranges(head(4), [view], {}, ends)
    assert [plan_range.is_cut for plan_range in limit_span(ranges, most)] == [is_cut]


def test_an_added_partition_starts_at_its_first_record() -> None:
    two = TopicView("t", "id", {0: 0, 1: 0}, {0: 10, 1: 5}, {0: 10, 1: 5})
    ranges = plan_ranges(head(4), [two], {}, None)
    assert ranges == (OffsetRange("t", 0, 4, 10), OffsetRange("t", 1, 0, 5))


def test_deleted_unread_records_halt_with_range_and_command() -> None:
    with pytest.raises(OffsetsLost, match=r"t\[0\] offsets 4 to 6 .*recover p --choose accept-gap"):
        plan_ranges(head(4), [view(start=7)], {}, None)


def test_a_log_that_ends_before_the_head_halts() -> None:
    with pytest.raises(LogTruncated, match="ends at offset 10, but it was read up to 12"):
        plan_ranges(head(12), [view()], {}, None)


def test_recreated_topic_halts_even_with_fitting_offsets() -> None:
    with pytest.raises(TopicRecreated, match="Raise `generation`"):
        plan_ranges(head(4), [view(topic_id="other")], {}, None)


def plan(start: int, end: int) -> Plan:
    return Plan(STREAM, 2, "r", 0, 0, (OffsetRange("t", 0, start, end),), {"t": "id"}, "", "")


def test_planned_empty_range_passed_by_retention_is_accepted() -> None:
    check_planned(plan(4, 10), [view(start=4)])
    check_planned(plan(4, 4), [view(start=7)])


@pytest.mark.parametrize(
    ("now", "error", "message"),
    [
        (view(topic_id="other"), TopicRecreated, "created again"),
        (view(start=7), OffsetsLost, "offsets 4 to 6 .*--choose accept-gap"),
        (
            view(stable=8),
            LogTruncated,
            "ends at offset 8, but batch 2 is planned up to 10.*--choose drop-plan",
        ),
        (view(stable=2), LogTruncated, "ends at offset 2, but it was read up to 4"),
    ],
)
def test_what_is_planned_and_no_longer_there_halts(
    now: TopicView, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_planned(plan(4, 10), [now])


ranges_strategy = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(
        lambda pair: OffsetRange("t", pair[0], pair[0], pair[0] + pair[1])
    ),
    max_size=6,
)


@given(ranges_strategy, st.integers(1, 3000))
def test_limited_ranges_fill_the_limit_exactly(ranges: list[OffsetRange], most: int) -> None:
    limited = limit_span(ranges, most)
    assert sum(offset_range.span for offset_range in limited) == min(
        most, sum(offset_range.span for offset_range in ranges)
    )
    for before, after in zip(ranges, limited, strict=True):
        assert (after.start, after.partition) == (before.start, before.partition)
        assert after.start <= after.end <= before.end


def test_busy_partition_does_not_starve_small_ones() -> None:
    ranges = [
        OffsetRange("t", partition, 5, 5 + span) for partition, span in enumerate([3, 0, 20_000, 40, 3])
    ]
    assert [offset_range.span for offset_range in limit_span(ranges, 100)] == [3, 0, 54, 40, 3]
    assert [offset_range.span for offset_range in limit_span(ranges, 10)] == [2, 0, 3, 3, 2]
