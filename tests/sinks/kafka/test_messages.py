"""An outbox as messages: headers, and the tombstone after a deletion that is told in an envelope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.model.files import made
from tidegate.formats import Records
from tidegate.formats.metadata import RecordMetadata, header_contents
from tidegate.kafka.messages import HEADER, messages_of, sizes_of
from tidegate.ledger import Stream
from tidegate.sinks.kafka.messages import topic_messages
from tidegate.sinks.kafka.model import KafkaSink

UPDATE, DELETION = '{"op":"u","after":{"name":"\\"op\\":\\"d\\""}}', '{"op":"d","after":null}'
ROWS = [("a", UPDATE), ("a", DELETION), ("b", DELETION), ("c", UPDATE), ("d", DELETION)]
EXPECTED = [("a", UPDATE), ("a", DELETION), ("a", None), ("b", DELETION), ("b", None)]
EXPECTED += [("c", UPDATE), ("d", DELETION), ("d", None)]


class FixedOutbox:
    """Rows of an outbox, so many at a time."""

    class plan:  # noqa: N801
        stream = Stream("levels", 2)
        seq = 7

    def __init__(self, sink: KafkaSink, rows: Sequence[tuple[str, str | None]], size: int) -> None:
        nothing = pa.nulls(len(rows), pa.int64())
        self._size = size
        columns = (
            {} if sink.key is None else {sink.key.column: pa.array([b"\0" + k.encode() for k, _ in rows])}
        )
        self._rows = pa.table(
            {
                **columns,
                "key": pa.array([key for key, _ in rows], pa.string()),
                sink.payload.column: pa.array([payload for _, payload in rows], pa.string()),
                "timestamp": pa.array(range(len(rows)), pa.int64()),
                "source": pa.array(["t/0/1"] * len(rows)),
                "window_start": nothing,
                "window_end": nothing,
                "reason": pa.array(["changed"] * len(rows)),
                "value": pa.array(
                    [None if payload in (None, DELETION) else {"m": 1, "t": "ä"} for _, payload in rows],
                    pa.struct([("m", pa.int64()), ("t", pa.string())]),
                ),
                "key_columns": pa.array([{"id": key} for key, _ in rows]),
            }
        )

    def batches(self, columns: Sequence[str], skip: int = 0) -> Iterator[pa.RecordBatch]:
        yield from self._rows.select(columns).slice(skip).to_batches(max_chunksize=self._size)


def sent(rows: Sequence[tuple[str, str | None]], skip: int = 0, size: int = 2, **sink: Any) -> list[Any]:
    stage = {"select": {"m": "1", "t": "name"}, "emit": {"on": "change"}}
    pipeline = made(stage, sinks=[{"kind": "kafka", "topic": "out", **sink}])
    (declared,) = pipeline.sinks
    assert isinstance(declared, KafkaSink)
    outbox: Any = FixedOutbox(declared, rows, size)
    return [message for batch in topic_messages(declared, outbox, skip) for message in messages_of(batch)]


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("skip", range(9))
def test_tombstone_follows_a_deletion_from_any_position(skip: int, size: int) -> None:
    messages = sent(ROWS, skip, size, format="debezium")
    pairs = [(message.key.decode(), message.value and message.value.decode()) for message in messages]
    assert pairs == EXPECTED[skip:]


@pytest.mark.parametrize("skip", range(4))
def test_a_deletion_without_an_envelope_is_one_message(skip: int) -> None:
    rows = [("a", '{"m":1}'), ("a", None), ("b", '{"op":"d",')]
    messages = sent(rows, skip)
    assert [message.value for message in messages] == [b'{"m":1}', None, b'{"op":"d",'][skip:]
    assert [[name for name, _ in message.headers] for message in messages] == [["tidegate-source"]] * (
        3 - skip
    )


def test_the_key_is_what_was_written_for_it() -> None:
    messages = sent(ROWS[:2], format="debezium", key_format="json")
    assert [message.key for message in messages] == [b"\0a", b"\0a", b"\0a"]


def test_message_carries_batch_and_reason_if_requested() -> None:
    (message,) = sent(ROWS[:1], headers=True)
    assert dict(message.headers) == {
        "tidegate-source": b"t/0/1",
        "tidegate-batch": b"levels/2/7",
        "tidegate-reason": b"changed",
    }


def test_columns_of_value_and_key_become_headers() -> None:
    (message,) = sent(ROWS[:1], headers={"trace-id": "t", "key": "id", "value": "m"})
    assert message.headers == [
        *(("tidegate-source", b"t/0/1"), ("trace-id", "ä".encode()), ("key", b"a"), ("value", b"1"))
    ]
    assert message.size == sizes_of(
        pa.RecordBatch.from_pydict(
            {
                "key": [message.key],
                "value": [message.value],
                "timestamp_ms": [0],
                **{f"{HEADER}{name}": [content] for name, content in message.headers},
            }
        )
    )


def test_deletion_has_only_headers_of_its_key() -> None:
    rows = [("a", None), ("b", '{"m":1}')]
    messages = sent(rows, headers={"t": "t", "device": "id"})
    assert [dict(message.headers).get("t") for message in messages] == [None, "ä".encode()]
    assert [dict(message.headers)["device"] for message in messages] == [b"a", b"b"]
    enveloped = sent([("d", DELETION)], format="debezium", headers={"t": "t", "device": "id"})
    assert [dict(message.headers).get("device") for message in enveloped] == [b"d", b"d"]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([7, None]), b"7"),
        (pa.array([True, None]), b"true"),
        (pa.array([1e10, None]), b"1.0E10"),
        (pa.array([float("nan"), None]), b"NaN"),
        (pa.array([Decimal("1.50"), None]), b"1.50"),
        (pa.array([b"\xff", None]), b"\xff"),
        (pa.array(['say "x"', None]), b'say "x"'),
        (pa.array([date(2026, 1, 31), None]), b"2026-01-31"),
        (pa.array([1_000_000, None], pa.timestamp("us", "UTC")), b"1970-01-01T00:00:01.000000Z"),
    ],
)
def test_header_has_the_text_that_a_source_reads(column: pa.Array, text: bytes) -> None:
    contents = header_contents(column)
    assert contents.to_pylist() == [text, None]
    metadata = RecordMetadata(headers={"h": ("h", column.type)})
    headers = [[("h", content)] for content in contents.to_pylist()]
    nothing = [None] * 2
    columns, reasons = metadata.read(Records("t", 0, [0, 1], [0, 0], nothing, nothing, headers))
    assert reasons == {}
    assert repr(columns["h"].to_pylist()) == repr(column.to_pylist())
