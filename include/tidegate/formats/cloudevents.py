"""`format: cloudevents`: events of CloudEvents 1.0, in both modes of its binding to Kafka.

In structured mode the record's value is the event, as JSON. In binary mode the value is the event's data, and
headers have its attributes: `ce_type` has the `type`. The header `content-type` tells the modes apart.

A column whose name begins with `ce_` is an attribute, in both modes; the others are fields of the data, a
JSON object that is read as strictly as by `format: json`. An event without data is a deletion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.csv import column_of
from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.json import NO_OLDER_NAMES, JsonDecoder, OlderNames, objects_of
from tidegate.formats.metadata import header_contents
from tidegate.formats.registry import Format
from tidegate.kernel.json_text import json_texts

if TYPE_CHECKING:
    from tidegate.formats.records import Records

PREFIX = "ce_"
"""The beginning of the names of headers, and of columns, that are attributes."""
CONTENT_TYPE = "content-type"
VERSION = "1.0"
STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
_STRUCTURED_MODE = "application/cloudevents"
_REQUIRED = ("id", "source", "type")
_JSON_DATA = re.compile(r"(application|text)/([a-z0-9.+-]*\+)?json *(;.*)?", re.IGNORECASE)
_ATTRIBUTES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SINGLE = msgspec.json.Decoder(str | bool | int | float | None)
_DATA = "data"


class EventRecord(NamedTuple):
    """The value and the headers of a record that has an event."""

    value: bytes
    headers: Mapping[str, bytes | None]


class _Event(NamedTuple):
    """An event of either mode.

    Args:
        attributes: name -> text; numbers and booleans have the text of their JSON.
        data: None if the event has none.
        path: the place of the data in the value.
    """

    attributes: Mapping[str, str | None]
    data: bytes | None
    path: str


class _Unusable(Exception):
    """The reason why an event cannot be used."""


def event_records(records: Records) -> list[EventRecord | None]:
    """Return what the decoder needs of each record; None for a tombstone, whatever headers it has."""
    # of a name that repeats, `dict` has the last header, as Kafka's `lastHeader`
    return [
        None if value is None else EventRecord(value, dict(headers or ()))
        for value, headers in zip(records.values, records.headers, strict=True)
    ]


class CloudEventsDecoder:
    """Decodes events to rows of `schema`.

    Args:
        aliases: Older names of columns of the data.
    """

    def __init__(self, schema: pa.Schema, aliases: OlderNames = NO_OLDER_NAMES) -> None:
        self.schema = schema
        self._attributes = [field for field in schema if field.name.startswith(PREFIX)]
        self._data = JsonDecoder(
            pa.schema([field for field in schema if not field.name.startswith(PREFIX)]), aliases
        )

    def decode(self, values: Sequence[EventRecord | None]) -> Decoded:
        """Decode each event; None, and an event without data, is a tombstone."""
        events, reasons = _events(values)
        decoded = self._data.decode([None if event is None else event.data for event in events])
        for row, reason in decoded.reasons.items():
            event = events[row]
            assert event is not None, "only data has a reason"
            reasons[row] = _placed(reason, event.path)
        columns = dict(zip(self._data.schema.names, decoded.columns.flatten(), strict=True))
        for field in self._attributes:
            name = field.name.removeprefix(PREFIX)
            texts = [None if event is None else event.attributes.get(name) for event in events]
            columns[field.name] = column_of(pa.array(texts, pa.string()), field, reasons)
        usable = decoded.columns.is_valid().to_numpy(zero_copy_only=False)
        usable[list(reasons)] = False
        arrays = [columns[name] for name in self.schema.names]
        rows = pa.StructArray.from_arrays(arrays, fields=list(self.schema), mask=pa.array(~usable))
        return Decoded(rows, reasons)


def _placed(reason: str, path: str) -> str:
    """Return why data cannot be used, with the place in the record's value."""
    at = " - at `"
    return reason.replace(f"{at}$", f"{at}{path}") if at in reason or path == "$" else f"{reason}{at}{path}`"


def _events(values: Sequence[EventRecord | None]) -> tuple[list[_Event | None], dict[int, str]]:
    """Return the event of each record, and row -> why there is none."""
    modes = [value is not None and _is_structured(value.headers) for value in values]
    whole = [value.value if value and mode else None for value, mode in zip(values, modes, strict=True)]
    objects, reasons = objects_of(_ATTRIBUTES, whole)
    events: list[_Event | None] = [None] * len(values)
    for row, value in enumerate(values):
        if value is None or row in reasons:
            continue
        try:
            event = _structured(objects[row]) if modes[row] else _binary(value)
            _require_attributes(event, "$." if modes[row] else PREFIX)
            events[row] = event
        except _Unusable as error:
            reasons[row] = malformed(str(error))
    return events, reasons


def _is_structured(headers: Mapping[str, bytes | None]) -> bool:
    """Return whether a record is in structured mode. Without headers it is: many producers write none."""
    content_type = headers.get(CONTENT_TYPE) or b""
    return content_type.lower().startswith(_STRUCTURED_MODE.encode()) or f"{PREFIX}specversion" not in headers


def _structured(members: Mapping[str, msgspec.Raw]) -> _Event:
    data = bytes(members.get(_DATA, b"null"))
    if members.get("data_base64", b"null") != b"null":
        raise _Unusable("Expected JSON data, got `data_base64` - at `$`")
    attributes = {name: _text(name, raw) for name, raw in members.items() if name != _DATA}
    return _Event(attributes, None if data == b"null" else data, f"$.{_DATA}")


def _text(name: str, raw: msgspec.Raw) -> str | None:
    try:
        value = _SINGLE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _Unusable(f"Expected a text, a number or a boolean - at `$.{name}`") from None
    if value is None or type(value) is str:
        return value
    return bytes(raw).decode()


def _binary(record: EventRecord) -> _Event:
    content_type = _header(CONTENT_TYPE, record.headers.get(CONTENT_TYPE))
    if content_type is not None and not _JSON_DATA.fullmatch(content_type):
        raise _Unusable(f"Expected JSON data, got {content_type[:100]!r} - at `{CONTENT_TYPE}`")
    names = [name for name in record.headers if name.startswith(PREFIX)]
    attributes = {name.removeprefix(PREFIX): _header(name, record.headers[name]) for name in names}
    return _Event(attributes, record.value or None, "$")


def _header(name: str, content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        raise _Unusable(f"it is not UTF-8 - at `{name}`") from None


def _require_attributes(event: _Event, path: str) -> None:
    version = event.attributes.get("specversion")
    if version != VERSION:
        what = "nothing" if version is None else repr(version[:20])
        raise _Unusable(f"Expected the version {VERSION} of CloudEvents, got {what} - at `{path}specversion`")
    for name in _REQUIRED:
        if not event.attributes.get(name):
            raise _Unusable(f"Expected a text that is not empty - at `{path}{name}`")


def event_texts(attributes: Mapping[str, pa.Array], data: pa.StringArray) -> pa.StringArray:
    """Return events in structured mode, without `data` for a deletion.

    Args:
        attributes: name -> column; null where an event lacks it.
        data: the JSON of each event's data; null for a deletion.
    """
    parts = {name: _member(name, column) for name, column in attributes.items()}
    head = pc.binary_join_element_wise(*parts.values(), "")
    # the first member has a comma, too
    head = pc.binary_replace_slice(head, 0, 1, "{")
    member = pc.fill_null(pc.binary_join_element_wise(f',"{_DATA}":', data, ""), "")
    return pc.binary_join_element_wise(head, member, "}", "")


def _member(name: str, column: pa.Array) -> pa.StringArray:
    return pc.fill_null(pc.binary_join_element_wise(f',"{name}":', json_texts(column), ""), "")


def event_headers(attributes: Mapping[str, pa.Array]) -> dict[str, pa.BinaryArray]:
    """Return the headers of events in binary mode: name -> column.

    Args:
        attributes: name -> column; null where an event lacks it. `datacontenttype` is the header
            `content-type`.
    """
    return {
        CONTENT_TYPE if name == "datacontenttype" else f"{PREFIX}{name}": header_contents(column)
        for name, column in attributes.items()
    }


FORMATS = (
    Format(
        "cloudevents",
        lambda layout: CloudEventsDecoder(layout.columns, layout.aliases),
        of_records=event_records,
        attribute_prefix=PREFIX,
        is_json=True,
        is_sent=True,
        data="json",
    ),
)
