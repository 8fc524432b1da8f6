"""A deliberately plain way from records to rows: one after the other, in Python's own types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import xxhash

from tests.formats.reference import Unusable, read
from tidegate.formats import RecordLayout, Records
from tidegate.kernel.json_text import encoder

CHAIN = re.compile(r"[A-Za-z0-9._-]+/[0-9]{1,9}/[0-9]{1,18}(;.*)?", re.DOTALL)
EPOCH = datetime(1970, 1, 1)


def rows(
    layout: RecordLayout, believed_until_ms: int | None, keeps_input: bool, records: Records
) -> Iterator[dict[str, Any]]:
    """The rows of records, as `FrameDecoder` gives them; `malformed` stands without its detail."""
    for at, offset in enumerate(records.offsets):
        value, key = records.values[at], records.keys[at]
        fields = fields_of(layout, value)
        chain = chain_of(records.headers[at] or ())
        for part, element in enumerate(elements(layout, fields)):
            row = dict.fromkeys(layout.row_columns.names) if fields is None else dict(fields)
            empty = element is NOTHING and value is not None
            if layout.explode:
                row[layout.explode] = None if element is NOTHING else element
            canonical = key_of(layout, key, value, row)
            timestamp = time_of(layout, value, row, records.timestamps[at])
            reason = (
                ("malformed" if value is not None and fields is None else None)
                or chain_fault(layout, chain)
                or key_fault(layout, key, value, canonical, empty)
                or time_fault(timestamp, believed_until_ms, empty)
            )
            text = canonical if isinstance(canonical, str) else None
            position = f"{records.topic}/{records.partition}/{offset}"
            whole = {
                "key": key,
                "value": value,
                "headers": header_list(records.headers[at]),
                "reason": reason,
                "part": part if layout.explode and reason != "malformed" else None,
                "recorded": records.timestamps[at],
                "timestamp_type": 1,
            }
            yield {
                "__topic": records.topic,
                "__partition": records.partition,
                "__offset": offset,
                "__turn": offset,
                "__part": part,
                "__key": text,
                "__hash": signed(xxhash.xxh64_intdigest((position if text is None else text).encode(), 42)),
                "__timestamp": timestamp,
                "__recorded": records.timestamps[at],
                "__tombstone": value is None,
                "__chain": chain if isinstance(chain, str) else None,
                "__reason": reason,
                "__input": whole if reason or keeps_input else None,
                "__empty": empty and reason is None,
                **(dict.fromkeys(row) if reason else row),
            }


NOTHING = object()
"""In place of an element where there is none."""


def fields_of(layout: RecordLayout, value: bytes | None) -> dict[str, Any] | None:
    """The columns of a value; None of a tombstone, and where they cannot be read."""
    try:
        if value is None or layout.format == "bytes":
            return None if value is None else {"value": value}
        return {"value": value.decode()} if layout.format == "string" else read(value, layout.columns)
    except (Unusable, UnicodeDecodeError):
        return None


def elements(layout: RecordLayout, fields: dict[str, Any] | None) -> list[Any]:
    if layout.explode is None:
        return [None]
    return (fields or {}).get(layout.explode) or [NOTHING]


def text_of(key: bytes | None) -> str | bytes | None:
    """Bytes stay bytes where they are no text."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key


def key_of(layout: RecordLayout, own: bytes | None, value: bytes | None, row: dict[str, Any]) -> Any:
    """The canonical key; bytes where it has to be text and is none."""
    if not layout.key or (value is None and len(layout.key) == 1):
        return text_of(own)
    schema = pa.schema([layout.row_columns.field(name) for name in layout.key])
    if value is None:
        if isinstance(text_of(own), bytes):
            return own
        try:
            row = dict.fromkeys(layout.key) if own is None else read(own, schema)
        except Unusable:
            return None
    parts = {name: row[name] for name in layout.key}
    if None in parts.values():
        return None
    return encoder(pa.struct(list(schema)))(parts) if len(parts) > 1 else alone(*parts.values())


def alone(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        whole = value.replace(tzinfo=None)
        fraction = f".{whole.microsecond:06}".rstrip("0") if whole.microsecond else ""
        return whole.replace(microsecond=0).isoformat(" ") + fraction
    return value.isoformat() if isinstance(value, date) else str(value)


def time_of(layout: RecordLayout, value: bytes | None, row: dict[str, Any], recorded: int) -> int | None:
    if layout.timestamp is None or value is None:
        return recorded
    declared = row[layout.timestamp]
    if isinstance(declared, datetime):
        since = declared.astimezone(timezone.utc).replace(tzinfo=None) - EPOCH
        return (since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000
    return declared  # type: ignore[no-any-return]


def chain_of(headers: Any) -> str | bytes | None:
    values = [value for name, value in headers if name == "tidegate-source"]
    return text_of(values[-1]) if values else None


def chain_fault(layout: RecordLayout, chain: str | bytes | None) -> str | None:
    fault = isinstance(chain, bytes) or (layout.rooted and chain is not None and not CHAIN.fullmatch(chain))
    return "malformed_source_chain" if fault else None


def key_fault(layout: RecordLayout, own: Any, value: Any, canonical: Any, empty: bool) -> str | None:
    if isinstance(text_of(own), bytes) and (not layout.key or value is None):
        return "key_not_text"
    if canonical is not None or empty:
        return None
    if not layout.key:
        return "null_key"
    return "tombstone_without_key" if value is None else "null_key_column"


def time_fault(timestamp: int | None, believed_until_ms: int | None, empty: bool) -> str | None:
    if timestamp is None:
        return None if empty else "no_timestamp"
    if timestamp < 0:
        return "negative_timestamp"
    late = believed_until_ms is not None and timestamp > believed_until_ms
    return "future_timestamp" if late else None


def header_list(headers: Any) -> list[Any] | None:
    return [{"key": name, "value": value} for name, value in headers] if headers else None


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
