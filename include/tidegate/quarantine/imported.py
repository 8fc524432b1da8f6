"""Read an exported and edited file back as quarantined rows, to replay them as the file has them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.errors import SettingsInvalid
from tidegate.lake.quarantine_files import QUARANTINE
from tidegate.quarantine.export import EXPORTED

_LINES = 4_096
_BYTES = 16 * 1024 * 1024


def iter_exported(path: Path) -> Iterator[pa.Table]:
    """Yield the records of a file that `export_quarantine` has written, with the columns of `QUARANTINE`.

    Each table has at most 4,096 lines or one row group. Key, value, headers and timestamp can be edited.

    Raises SettingsInvalid if the file cannot be read; the error names the line that is not an exported
    record.
    """
    try:
        if path.suffix == ".jsonl":
            yield from _from_lines(path)
        elif path.suffix == ".parquet":
            yield from _from_parquet(path)
        else:
            raise SettingsInvalid(f"{path} ends with none of .jsonl, .parquet", "Name an exported file.")
    except (OSError, pa.ArrowException) as error:
        raise SettingsInvalid(
            f"{path} cannot be read: {error}", "Name a file that `tidegate quarantine export` has written."
        ) from error


def _from_parquet(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, use_threads=False)
            missing = sorted({"batch", "topic", "partition", "offset", "part"} - set(rows.column_names))
            if missing:
                raise SettingsInvalid(
                    f"{path} lacks the columns {', '.join(missing)}", "Keep all columns of the export."
                )
            yield _as_quarantine(rows.select([n for n in EXPORTED.names if n in rows.column_names]))


def _as_quarantine(rows: pa.Table) -> pa.Table:
    def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
        name = "batch" if field.name == "seq" else field.name
        return rows[name].cast(field.type) if name in rows.column_names else pa.nulls(len(rows), field.type)

    return pa.table([column(field) for field in QUARANTINE], schema=QUARANTINE)


def _from_lines(path: Path) -> Iterator[pa.Table]:
    records: list[dict[str, Any]] = []
    size = 0
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                records.append(_record(path, number, line))
                size += len(line)
            # limited by bytes, too, since a single record can have a megabyte
            if len(records) == _LINES or size >= _BYTES:
                yield pa.Table.from_pylist(records, QUARANTINE)
                records, size = [], 0
    if records:
        yield pa.Table.from_pylist(records, QUARANTINE)


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
        headers = [
            {"key": str(header["key"]), "value": _decoded(header, "value")} for header in document["headers"]
        ]
        record = {
            "topic": str(document["topic"]),
            **{name: int(document[name]) for name in ("partition", "offset")},
            "part": None if document["part"] is None else int(document["part"]),
            "seq": int(document["batch"]),
            "timestamp": None if document["timestamp"] is None else int(document["timestamp"]),
            "reason": document.get("reason"),
            "key": _decoded(document, "key"),
            "value": _decoded(document, "value"),
            "headers": headers or None,
        }
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else error
        raise SettingsInvalid(
            f"Line {number} of {path} is no exported record: {what}",
            "Keep its fields, one JSON object a line; edit `key`, `value`, `headers` and `timestamp` only.",
        ) from error
    return record


def _decoded(document: dict[str, Any], name: str) -> bytes | None:
    """Decode text, base64 or null, as `<name>_encoding` says; a missing encoding, after an edit, means
    text.
    """
    text, encoding = document[name], document.get(f"{name}_encoding")
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"`{name}` is no text: what JSON a record has is a text here, too")
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError(f"`{name}` is no base64: {error}") from error
    if encoding not in (None, "utf-8"):
        raise ValueError(f"`{name}_encoding` is {encoding!r}, and not utf-8, base64 or null")
    return text.encode()
