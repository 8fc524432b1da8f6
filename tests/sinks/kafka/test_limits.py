"""Messages that their topic does not take for their size: found before the commit, and told by `doctor`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.kafka.batches import batch_of, message
from tests.model.files import made
from tidegate.errors import RecordTooLarge
from tidegate.kafka.config import MAX_RECORD_BYTES
from tidegate.sinks.kafka.limits import check_sizes, narrow_size, wide_threshold

TOPIC = {"kind": "kafka", "topic": "t"}


def warning(emit: dict[str, Any], takes: int | None) -> str | None:
    pipeline = made({"reduce": "collect", "emit": {"on": "threshold", **emit}}, sinks=[TOPIC])
    return wide_threshold(pipeline.stages[0], "t", takes)


@pytest.mark.parametrize(
    ("max_bytes", "takes", "told_of"),
    [
        (900_000, 1_048_588, False),
        (1_000_000, 1_048_588, True),
        (900_000, None, False),
        (1_000_000, 20_000_000, True),
        (90_000, 100_000, False),
        (100_000, 100_000, True),
    ],
)
def test_threshold_beyond_its_topic_limit_is_reported(
    max_bytes: int, takes: int | None, told_of: bool
) -> None:
    sentence = warning({"max_bytes": max_bytes}, takes)
    assert (sentence is not None) == told_of
    assert sentence is None or (f"up to {max_bytes} bytes" in sentence and "Write `max_bytes: " in sentence)


def test_a_threshold_without_bytes_is_not_reported() -> None:
    assert warning({"count": 5}, 100_000) is None


LARGEST = 1_000


def noise(size: int) -> bytes:
    """Return bytes that no compression makes smaller."""
    return random.Random(size).randbytes(size)


def test_oversized_message_is_found_before_sending() -> None:
    first, small, large = message(b"a"), message(b"b", noise(900)), message(b"large", noise(2_000))
    with pytest.raises(RecordTooLarge, match=r"key b'large' has 20\d\d bytes; the topic t takes 1000"):
        check_sizes("t", LARGEST, [batch_of([first]), batch_of([small, large])])


def test_compressible_message_is_sent() -> None:
    check_sizes("t", LARGEST, [batch_of([message(b"a", b"x" * 100_000), message(b"b", None)])])


@pytest.mark.parametrize("size", [900, 995])
def test_oversized_headers_are_left_to_the_broker(size: int) -> None:
    sent = message(b"a", noise(size - 20))
    assert (sent.size > LARGEST) == (size == 995)
    check_sizes("t", LARGEST, [batch_of([sent])])


@pytest.mark.parametrize("largest", [None, MAX_RECORD_BYTES, 20_000_000])
def test_messages_are_measured_only_for_small_topics(
    largest: int | None,
) -> None:
    def unread() -> Iterator[pa.RecordBatch]:
        raise AssertionError("it was read")
        yield

    check_sizes("t", largest, unread())
    assert narrow_size("t", largest) is None


def test_topic_smaller_than_a_batch_is_reported() -> None:
    sentence = narrow_size("t", LARGEST)
    assert sentence is not None
    assert f"up to {LARGEST} bytes" in sentence
    assert "--topic t --add-config max.message.bytes=1048588" in sentence
