"""Messages as columns, from the outbox to the client: `key`, `value`, `timestamp_ms`, and headers.

A batch of messages is an Arrow record batch. `key` and `value` are binary and may be null, `timestamp_ms` is
int64, epoch ms. The optional column `brought` is a list of headers (`key`, `value`) of any names; they come
first. Every other column is a header with the column's name: binary, null if a message lacks the header. The
columns of headers that a pipeline names begin with `HEADER`, since they can have any name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_RECORDS = 40_000
"""The largest number of messages of a transaction, which librdkafka keeps in memory."""
LEAST_CHUNK_BYTES = 64 * 1024
"""The smallest size limit of a transaction, for the slowest broker."""
BROUGHT = "brought"
HEADER = "header:"
_FIXED = ("key", "value", "timestamp_ms")


class Message(NamedTuple):
    """One message. `timestamp_ms` is epoch ms; an emission with a null value is a deletion."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]

    @property
    def size(self) -> int:
        """The number of bytes of key, value and headers."""
        beside = sum(len(name.encode()) + len(content or b"") for name, content in self.headers)
        return len(self.key or b"") + len(self.value or b"") + beside


def messages_of(batch: pa.RecordBatch) -> Iterator[Message]:
    """Yield the messages of a batch."""
    headers = _headers_of(batch)
    return map(Message, *(objects_of(batch.column(name)) for name in _FIXED), headers)


class MessageColumns(NamedTuple):
    """The parts of many messages, one after the other: for code that sends many of them."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps_ms: Sequence[int]
    headers: Iterable[Any]
    """A list of names and contents for each message; None if no message has headers, which the client sends
    more quickly than empty lists."""


def message_columns(batch: pa.RecordBatch) -> MessageColumns:
    """Return the messages of a batch as columns of Python's objects."""
    keys, values, timestamps = (objects_of(batch.column(name)) for name in _FIXED)
    has_headers = any(name not in _FIXED for name in _filled(batch))
    headers = _headers_of(batch) if has_headers else repeat(None, batch.num_rows)
    return MessageColumns(keys, values, timestamps, headers)


def _filled(batch: pa.RecordBatch) -> list[str]:
    """Return the columns in which a message has something."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return [name for name, column in columns if column.null_count < batch.num_rows]


def objects_of(column: pa.Array) -> list[Any]:
    """Return a column as Python objects.

    It takes a tenth of the time of `to_pylist`, which makes an Arrow scalar of each value first.
    """
    objects: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return objects


def _headers_of(batch: pa.RecordBatch) -> Iterable[list[tuple[str, bytes | None]]]:
    named = _named_headers(batch)
    if BROUGHT not in batch.schema.names:
        return named
    brought = batch.column(BROUGHT).to_pylist()
    return (
        [*((header["key"], header["value"]) for header in headers or ()), *more]
        for headers, more in zip(brought, named, strict=True)
    )


def _named_headers(batch: pa.RecordBatch) -> Iterable[list[tuple[str, bytes | None]]]:
    names = [name for name in _filled(batch) if name not in (*_FIXED, BROUGHT)]
    if not names:
        return [[] for _ in range(batch.num_rows)]
    # made of functions in C: a comprehension per message took six times as long
    pairs = (zip(repeat(name.removeprefix(HEADER)), objects_of(batch.column(name))) for name in names)
    headers = zip(*pairs, strict=True)
    if not any(batch.column(name).null_count for name in names):
        return map(list, headers)
    return ([header for header in row if header[1] is not None] for row in headers)


def sizes_of(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of bytes of key, value and headers of each message."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == BROUGHT:
            sizes += _brought_sizes(column)
        elif name != "timestamp_ms" and column.null_count < batch.num_rows:
            lengths = pc.binary_length(column)
            beside = 0 if name in _FIXED else len(name.removeprefix(HEADER).encode())
            if column.null_count:
                lengths, beside = pc.fill_null(pc.add(lengths, beside), 0), 0
            sizes += lengths.to_numpy(zero_copy_only=False) + beside
    return sizes


def _brought_sizes(headers: pa.ListArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of bytes of the names and contents of each list of headers."""
    flat = headers.flatten()
    lengths = [pc.fill_null(pc.binary_length(part), 0).to_numpy() for part in flat.flatten()]
    parents = pc.list_parent_indices(headers).to_numpy()
    return np.bincount(parents, sum(lengths), len(headers)).astype(np.int64)


def chunks(
    batches: Iterable[pa.RecordBatch], records: int, size: Callable[[], int]
) -> Iterator[tuple[list[pa.RecordBatch], bool]]:
    """Yield chunks of messages, each with whether it is the last; at least one.

    A message that is larger than a chunk is a chunk by itself.

    Args:
        batches: the messages, in their order.
        records: the largest number of messages of a chunk.
        size: the largest number of bytes; it is called when a chunk begins, because the pace of the broker
            changes.
    """
    chunk: list[pa.RecordBatch] = []
    rows_left, bytes_left = records, size()
    for batch in batches:
        ends = np.cumsum(sizes_of(batch))
        start = 0
        while start < batch.num_rows:
            before = ends[start - 1] if start else 0
            # `ends` are running sums: a binary search finds what fits, without a loop over messages.
            fitting = int(np.searchsorted(ends, before + bytes_left, side="right")) - start
            count = min(rows_left, fitting, batch.num_rows - start)
            if count <= 0 and chunk:
                yield chunk, False
                chunk, rows_left, bytes_left = [], records, size()
                continue
            # A message that is larger than a chunk goes alone: only the topic decides what is too large.
            count = max(count, 1)
            chunk.append(batch.slice(start, count))
            start += count
            rows_left, bytes_left = rows_left - count, bytes_left - int(ends[start - 1] - before)
    yield chunk, True
