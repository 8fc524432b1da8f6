"""Export quarantined records to a file that other programs can read, and read an edited file back.

The file has JSON lines or is a Parquet file.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Stream
from tidegate.quarantine.store import ALL, QuarantineFilter, iter_quarantine
from tidegate.storage.quarantine_files import QUARANTINE, reason_codes, reason_details

_LINES = 4_096
_BYTES = 16 * 1024 * 1024
"""The most lines, and bytes of them, of an exported file that are read at once."""
EXPORTED = pa.schema(
    [
        ("batch", pa.int64()),
        *((name, QUARANTINE.field(name).type) for name in ("topic", "partition", "offset", "part")),
        ("timestamp", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        *((name, QUARANTINE.field(name).type) for name in ("key", "value", "headers")),
    ]
)
"""The columns of an exported record.

`topic`, `partition` and `offset` identify it in Kafka, and `part` the element of its exploded list, if only
that element cannot be used. `timestamp` is the record's in Kafka, in epoch ms, since a replay reads it as if
it came from there; for an emission its own. `reason` is the name of a `formats.decoded.Reason`, and `detail`
the text after it, or null.
"""


def export_quarantine(
    app: App,
    stream: Stream,
    path: Path,
    where: QuarantineFilter = ALL,
    overwrite: bool = False,
    open_only: bool = False,
) -> int:
    """Write records to a file, and return their number.

    The oldest batch comes first; the records of a batch are in no particular order. The file is written under
    another name and renamed when it is complete, so an error leaves an existing file unchanged.

    Args:
        path: Its ending decides the format: `.jsonl` (see `exported_objects`) or `.parquet` (columns of
            `EXPORTED`).
        overwrite: Replace an existing file.
        open_only: Leave out records that were replayed or discarded.

    Raises SettingsInvalid for another ending, for an existing file without `overwrite`, and if the file
    cannot be written;
    LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    write = _WRITERS.get(path.suffix)
    if write is None:
        raise SettingsInvalid(
            f"{path} does not end with {' or '.join(_WRITERS)}", "Name a file with one of these endings."
        )
    if path.exists() and not overwrite:
        raise SettingsInvalid(f"{path} already exists", "Name another file, or give --force to replace it.")
    with _renamed_to(path) as partial:
        return write(partial, map(exported, iter_quarantine(app, stream, where, open_only)))


def exported(rows: pa.Table) -> pa.Table:
    """Return rows of a quarantine with the columns of `EXPORTED`.

    Example: the reason `malformed: no JSON` becomes the reason `malformed` and the detail `no JSON`.
    """
    parts = {
        "batch": rows["seq"],
        "timestamp": pc.coalesce(rows["recorded"], rows["timestamp"]),
        "reason": reason_codes(rows["reason"]),
        "detail": reason_details(rows["reason"]),
    }
    columns = [parts[name] if name in parts else rows[name] for name in EXPORTED.names]
    return pa.table(columns, schema=EXPORTED)


def exported_objects(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows of `exported` as objects for JSON.

    `key`, `value` and the `value` of each header are text if they are UTF-8, else base64. `key_encoding` and
    `value_encoding` say which: `utf-8`, `base64`, or null for null. Headers keep their order, and can repeat.
    """
    for row in rows.to_pylist():
        headers = row.pop("headers") or ()
        yield {
            **{name: value for name, value in row.items() if name not in ("key", "value")},
            **_encoded("key", row["key"]),
            **_encoded("value", row["value"]),
            "headers": [{"key": header["key"], **_encoded("value", header["value"])} for header in headers],
        }


def _encoded(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None, f"{name}_encoding": None}
    try:
        return {name: value.decode(), f"{name}_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}


@contextmanager
def _renamed_to(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that is renamed to `path` if nothing fails, and removed
    otherwise.
    """
    # In the same folder, since a rename to another file system would be a copy.
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise SettingsInvalid(
            f"{path} cannot be written: {error.strerror or error}",
            "Name a file in a folder that exists.",
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _write_lines(path: Path, tables: Iterable[pa.Table]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for rows in tables:
            count += rows.num_rows
            for record in exported_objects(rows):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        _flush(file)
    return count


def _write_parquet(path: Path, tables: Iterable[pa.Table]) -> int:
    count = 0
    with path.open("wb") as file:
        with pq.ParquetWriter(file, EXPORTED, compression="zstd") as writer:
            for rows in tables:
                count += rows.num_rows
                writer.write_table(rows)
        _flush(file)
    return count


def _flush(file: Any) -> None:
    """Flush a file to disk before it is renamed, so that a crash never leaves an incomplete file with the
    final name.
    """
    file.flush()
    os.fsync(file.fileno())


_WRITERS: dict[str, Callable[[Path, Iterable[pa.Table]], int]] = {
    ".jsonl": _write_lines,
    ".parquet": _write_parquet,
}


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
            # One thread and one row group at a time: values can be megabytes.
            rows = file.read_row_group(number, use_threads=False)
            # Also the columns that people edit: a missing one would be null, and a null value is a deletion.
            missing = sorted(set(EXPORTED.names) - {"reason", "detail"} - set(rows.column_names))
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
