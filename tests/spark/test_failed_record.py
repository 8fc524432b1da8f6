"""The record on which an expression fails is found by halving the batch's ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BrokerUnavailable, RecordFailed
from tidegate.kafka.config import KafkaConfig
from tidegate.ledger import OffsetRange
from tidegate.spark.errors import EXPRESSION_FIX, with_record
from tidegate.spark.source import KafkaSource

HIDDEN = RecordFailed("`10 / n` fails", f"Spark does not tell which record it is. {EXPRESSION_FIX}")
KAFKA = KafkaConfig("nowhere:1")


def source(*ranges: OffsetRange) -> KafkaSource:
    return KafkaSource(KAFKA, ranges)


def contains(records: KafkaSource, offset: int, partition: int = 0) -> bool:
    return any(at.partition == partition and at.start <= offset < at.end for at in records.ranges)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any), st.data())
def test_first_failing_offset_is_named(spans: list[int], data: st.DataObject) -> None:
    records = source(*(OffsetRange("t", number, 7, 7 + span) for number, span in enumerate(spans)))
    places = [(number, 7 + at) for number, span in enumerate(spans) for at in range(span)]
    failing = sorted(data.draw(st.sets(st.sampled_from(places), min_size=1)))

    def fails(part: KafkaSource) -> bool:
        return any(contains(part, offset, partition) for partition, offset in failing)

    partition, offset = failing[0]
    assert f"(the record t[{partition}] offset {offset})" in with_record(HIDDEN, records, fails).what


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5))
def test_halves_have_every_offset_once(spans: list[int]) -> None:
    records = source(*(OffsetRange("t", number, 3, 3 + span) for number, span in enumerate(spans)))
    first, second = records.halves()
    assert first.span == records.span // 2
    assert first.span + second.span == records.span
    for number, span in enumerate(spans):
        for offset in range(3, 3 + span):
            assert contains(first, offset, number) != contains(second, offset, number)


def test_expression_of_a_later_stage_names_none() -> None:
    assert with_record(HIDDEN, source(OffsetRange("t", 0, 0, 9)), lambda _: False) is HIDDEN


def test_error_that_names_its_record_is_kept() -> None:
    named = RecordFailed("The sum of t[0] offset 3 is too large", "Use a decimal.")
    assert with_record(named, source(OffsetRange("t", 0, 0, 9)), lambda _: True) is named


def test_failed_search_keeps_the_first_error() -> None:
    def fails(_: KafkaSource) -> bool:
        raise BrokerUnavailable("Kafka does not answer", "Try again.")

    assert with_record(HIDDEN, source(OffsetRange("t", 0, 0, 9)), fails) is HIDDEN
