"""Export quarantined records to a file that other programs can read: JSON lines or Parquet."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.lake.quarantine_files import QUARANTINE, reason_codes, reason_details
from tidegate.ledger import Stream
from tidegate.quarantine.history import iter_open
from tidegate.quarantine.store import ALL, QuarantineFilter, iter_quarantine

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
that element cannot be used. `timestamp` is epoch ms. `reason` is the name of a `formats.reasons.Reason`, and
`detail` the text after it, or null.
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
        rows = iter_open(app, stream, where) if open_only else iter_quarantine(app, stream, where)
        return write(partial, map(exported, rows))


def exported(rows: pa.Table) -> pa.Table:
    """Return rows of a quarantine with the columns of `EXPORTED`."""
    parts = {
        "batch": rows["seq"],
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
