"""Find the record on which an expression of `select` fails, which Spark does not name.

Spark computes expressions on whole batches, and its errors have the expression and the value at most. So the
failed batch's ranges are halved until one offset is left that fails: some 25 small jobs for 10,000,000
records, each of which reads half as much as the job before.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.errors import RecordFailed, TidegateError
from tidegate.spark.errors import EXPRESSION_FIX, hides_its_record
from tidegate.spark.source import KafkaSource


def with_record(
    error: RecordFailed, source: KafkaSource, fails: Callable[[KafkaSource], bool]
) -> RecordFailed:
    """Return the error with the first record that fails; unchanged if it names one, or if none is found.

    An expression of a later stage reads emissions, which no range of the source has alone, so none is found
    for it.

    Args:
        error: the error of the batch.
        source: the planned ranges.
        fails: whether the first stage's expressions fail on a source's records; a job of Spark each time.
    """
    if not hides_its_record(error):
        return error
    try:
        place = _first_failing(source, fails)
    except TidegateError:
        return error  # such as a broker that does not answer now: the batch has failed for another reason
    if place is None:
        return error
    topic, partition, offset = place
    return RecordFailed(
        f"{error.what} (the record {topic}[{partition}] offset {offset})",
        f"{EXPRESSION_FIX} To see the record: kafka-console-consumer.sh --topic {topic} --partition "
        f"{partition} --offset {offset} --max-messages 1.",
    )


def _first_failing(source: KafkaSource, fails: Callable[[KafkaSource], bool]) -> tuple[str, int, int] | None:
    if not fails(source):
        return None
    while source.span > 1:
        # invariant: `source` fails, so if its first half does not, its second half does
        first, second = source.halves()
        source = first if fails(first) else second
    for planned in source.ranges:
        if planned.span and fails(source):  # a batch's source also has ranges without new records
            return planned.topic, planned.partition, planned.start
    return None
