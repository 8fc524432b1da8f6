"""Cut a batch's emissions into requests, always in the same way.

The bytes of a request, and its idempotency key, depend on nothing but the outbox of the committed attempt and
the sink in the plan. So another process that sends a request again sends the same one, and a receiver that
stores the keys takes it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.cloudevents import BATCHED, event_headers, event_texts
from tidegate.kafka.messages import objects_of
from tidegate.kernel.json_text import json_texts, object_texts
from tidegate.sinks.cloudevents import COLUMNS as EVENT_COLUMNS
from tidegate.sinks.cloudevents import event_attributes
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
    "cloudevents": BodyForm(f"{BATCHED}; charset=UTF-8", b"[", b",", b"]"),
}
"""`format` of a sink -> the form."""
_MOST_ESCAPED = 6
"""The most bytes of JSON for a byte of text: a control character is `\\u0001`."""
_FRAME_BYTES = 2_000
"""More than an emission has beside its key and its value: names, times, and the attributes of an event."""
_BINARY = BodyForm("", b"", b"", b"")
_UNCHANGED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""The characters of an attribute that a header has as they are, by CloudEvents' binding to HTTP."""


def form_of(sink: HttpSink) -> BodyForm:
    """Return the form of a sink's requests. The headers of an event in binary mode have its content type."""
    return _BINARY if sink.is_binary else FORMS[sink.format]


class RequestPart(NamedTuple):
    """An emission as a part of a body, and the headers of an event in binary mode."""

    text: bytes
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed


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
    form, parts, number = form_of(sink), list[RequestPart](), sent_requests
    size = least = len(form.before) + len(form.behind)
    most = 1 if sink.is_binary else sink.batch_records
    for part in request_parts(sink, outbox, sent_records):
        added = len(part.text) + len(form.between)
        if parts and (len(parts) == most or size + added > sink.max_bytes):
            number += 1
            yield _request(sink, outbox, number, parts)
            parts, size = [], least
        parts.append(part)
        size += added
    if parts:
        yield _request(sink, outbox, number + 1, parts)


def _request(sink: HttpSink, outbox: Outbox, number: int, parts: list[RequestPart]) -> EmissionRequest:
    form = form_of(sink)
    body = form.before + form.between.join(part.text for part in parts) + form.behind
    headers = {"idempotency-key": idempotency_key(sink, outbox, number)}
    if form.content_type:
        headers["content-type"] = form.content_type
    return EmissionRequest(number, len(parts), body, headers | parts[0].headers)


def idempotency_key(sink: HttpSink, outbox: Outbox, number: int) -> str:
    """Return the key of a request: stream, batch, the number of the request, and a digest.

    The digest is of the sink and the attempt. A receiver can have several sinks, and several ledgers: the
    same key must never stand for other content, which the receiver would then take for a repetition.

    Example: `orders/1/12/3/5f0c6a1b9d3e2f47`.
    """
    digest = hashlib.sha256(f"{sink.name}\n{outbox.attempt}".encode()).hexdigest()[:16]
    return f"{outbox.plan.stream}/{outbox.plan.seq}/{number}/{digest}"


def largest_part(sink: HttpSink, outbox: Outbox, room: int) -> int:
    """Return the bytes of the largest emission in a body, or a bound of them that is not above `room`.

    To encode each emission takes twenty times as long as to add up lengths. The encoded requests are not kept
    for the publication, which often is in another process: they would need the memory of the whole outbox.
    """
    payload = sink.messages.payload.column
    bound = max((_part_bound(emissions, payload) for emissions in outbox.batches([KEY, payload])), default=0)
    return bound if bound <= room else max(len(part.text) for part in request_parts(sink, outbox))


def _part_bound(emissions: pa.RecordBatch, payload: str) -> int:
    keys, values = (pc.fill_null(pc.binary_length(emissions.column(name)), 0) for name in (KEY, payload))
    return int(pc.max(pc.add(pc.multiply(keys, _MOST_ESCAPED), values)).as_py()) + _FRAME_BYTES


def request_parts(sink: HttpSink, outbox: Outbox, skip: int = 0) -> Iterator[RequestPart]:
    """Yield each emission from the `skip`-th on.

    Example: the text `{"key":"7","timestamp":1000,"value":{"n":1}}`, with `window_start` and `window_end`
    behind the key if the stage has a window. The value of a deletion is null.
    """
    payload = sink.messages.payload.column
    if sink.cloudevents is None:
        windows = window_columns(outbox.stage is not None and outbox.stage.window is not None)
        for emissions in outbox.batches([KEY, *WINDOW, TIMESTAMP, payload], skip):
            yield from map(RequestPart, _bytes_of(_texts(emissions, windows, payload)))
        return
    for emissions in outbox.batches([*EVENT_COLUMNS, payload], skip):
        data = emissions.column(payload)
        attributes = event_attributes(sink.cloudevents, outbox, emissions, data.is_valid())
        if sink.is_binary:
            yield from map(RequestPart, _bytes_of(pc.fill_null(data, "")), _headers(attributes))
        else:
            yield from map(RequestPart, _bytes_of(event_texts(attributes, data)))


def _texts(emissions: pa.RecordBatch, windows: tuple[str, ...], payload: str) -> pa.StringArray:
    plain = [KEY, *windows, TIMESTAMP]
    parts = [pc.fill_null(json_texts(emissions.column(name)), "null") for name in plain]
    value = pc.fill_null(emissions.column(payload), "null")
    return object_texts([*plain, "value"], [*parts, value])


def _bytes_of(texts: pa.StringArray) -> list[bytes]:
    return objects_of(texts.view(pa.binary()))


def _headers(attributes: Mapping[str, pa.Array]) -> Iterator[dict[str, str]]:
    """Yield the headers of each event in binary mode: `ce-type` and the like."""
    columns = event_headers(attributes)
    names = [name.replace("_", "-") for name in columns]
    for contents in zip(*map(objects_of, columns.values()), strict=True):
        headers = zip(names, contents, strict=True)
        yield {name: quote(text, _UNCHANGED) for name, text in headers if text is not None}
