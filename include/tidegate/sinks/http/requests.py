"""Cut a batch's emissions into requests, always in the same way.

The bytes of a request, and its idempotency key, depend on nothing but the outbox of the committed attempt and
the sink in the plan. So another process that sends a request again sends the same one, and a receiver that
stores the keys takes it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kafka.messages import objects_of
from tidegate.kernel.json_text import json_texts, object_texts
from tidegate.sinks.http.model import HttpSink
from tidegate.sinks.outbox import Outbox
from tidegate.storage.schema import KEY, TIMESTAMP, WINDOW, window_columns


class BodyForm(NamedTuple):
    """The form of a request's body: what is before, between and behind the emissions."""

    content_type: str
    before: bytes
    between: bytes
    behind: bytes


FORMS = {
    "json": BodyForm("application/json", b"[", b",", b"]"),
    "json_lines": BodyForm("application/x-ndjson", b"", b"\n", b"\n"),
}
"""`format` of a sink -> the form."""


@dataclass(frozen=True)
class EmissionRequest:
    """One request.

    Args:
        number: counts the requests of a batch from 1.
        records: the number of emissions in it.
        headers: beside those of the connection.
    """

    number: int
    records: int
    body: bytes
    headers: dict[str, str]


def emission_requests(
    sink: HttpSink, outbox: Outbox, sent_requests: int = 0, sent_records: int = 0
) -> Iterator[EmissionRequest]:
    """Yield the requests of a batch, without those that are acknowledged.

    A request ends before the emission with which it would have more than `batch_records` emissions, or more
    than `max_bytes` bytes.

    Raises LakeDamaged, LakeUnavailable.
    """
    form, texts, number = FORMS[sink.format], list[bytes](), sent_requests
    size = least = len(form.before) + len(form.behind)
    for text in emission_texts(sink, outbox, sent_records):
        added = len(text) + len(form.between)
        if texts and (len(texts) == sink.batch_records or size + added > sink.max_bytes):
            number += 1
            yield _request(sink, outbox, number, texts)
            texts, size = [], least
        texts.append(text)
        size += added
    if texts:
        yield _request(sink, outbox, number + 1, texts)


def _request(sink: HttpSink, outbox: Outbox, number: int, texts: list[bytes]) -> EmissionRequest:
    form = FORMS[sink.format]
    body = form.before + form.between.join(texts) + form.behind
    headers = {"content-type": form.content_type, "idempotency-key": idempotency_key(sink, outbox, number)}
    return EmissionRequest(number, len(texts), body, headers)


def idempotency_key(sink: HttpSink, outbox: Outbox, number: int) -> str:
    """Return the key of a request: stream, batch, the number of the request, and a digest.

    The digest is of the sink and the attempt. A receiver can have several sinks, and several ledgers: the
    same key must never stand for other content, which the receiver would then take for a repetition.

    Example: `orders/1/12/3/5f0c6a1b9d3e2f47`.
    """
    digest = hashlib.sha256(f"{sink.name}\n{outbox.attempt}".encode()).hexdigest()[:16]
    return f"{outbox.plan.stream}/{outbox.plan.seq}/{number}/{digest}"


def emission_texts(sink: HttpSink, outbox: Outbox, skip: int = 0) -> Iterator[bytes]:
    """Yield the JSON of each emission from the `skip`-th on.

    Example: `{"key":"7","timestamp":1000,"value":{"n":1}}`, with `window_start` and `window_end` behind the
    key if the stage has a window. The value of a deletion is null.
    """
    windows = window_columns(outbox.stage is not None and outbox.stage.window is not None)
    for emissions in outbox.batches([KEY, *WINDOW, TIMESTAMP, sink.messages.payload.column], skip):
        yield from objects_of(_texts(emissions, windows, sink.messages.payload.column).view(pa.binary()))


def _texts(emissions: pa.RecordBatch, windows: tuple[str, ...], payload: str) -> pa.StringArray:
    plain = [KEY, *windows, TIMESTAMP]
    parts = [pc.fill_null(json_texts(emissions.column(name)), "null") for name in plain]
    value = pc.fill_null(emissions.column(payload), "null")
    return object_texts([*plain, "value"], [*parts, value])
