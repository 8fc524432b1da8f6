"""Open Delta tables: those of sinks, of lookups, and tables for other engines.

`path` is a folder or a URI. Access to an object store uses the settings of the lake: see `storage.store`.

Columns of a table and of files to add are compared here, too: which the table lacks, and which are too
narrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from pyarrow.fs import SubTreeFileSystem

from tidegate.errors import LakeDamaged, LakeUnavailable, SchemaChanged
from tidegate.kernel.equality import widens
from tidegate.storage.store import Store, unavailable


@contextmanager
def delta_errors(path: str) -> Iterator[None]:
    """Turn failures of a table and of its store into typed ones. Raises LakeUnavailable."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise table_unavailable(path, error) from error


def table_unavailable(path: str, error: Exception) -> LakeUnavailable:
    """Return the error for a table that cannot be used."""
    return unavailable(f"The table {path}", error)


def existing_table(path: str) -> DeltaTable | None:
    """Return the table, or None if there is none. Use it within `delta_errors`."""
    # not `DeltaTable.is_deltatable`: it blocks all threads of the process until the store has answered
    try:
        return open_table(path)
    except TableNotFoundError:
        return None


def open_table(path: str, version: int | None = None) -> DeltaTable:
    """Return the table at its newest version, or at `version`. Use it within `delta_errors`."""
    return DeltaTable(path, version=version, storage_options=storage_options(path))


def storage_options(path: str) -> dict[str, str] | None:
    """Return the options with which delta-rs opens the store of a table; None for a disk."""
    return Store(path).delta_options


def flush_commits(path: str, table: DeltaTable, application: str) -> None:
    """Make the table's newest commits survive a power cut: log entries, checkpoints and the files they add.

    These are the last commit of `application` and all commits since its last but one, which an earlier call
    flushed. delta-rs does not flush; an object store needs no flush. Raises LakeUnavailable.
    """
    store, commits = Store(path), 0
    if store.is_remote:
        return
    for version in range(table.version(), -1, -1):
        log = f"_delta_log/{version:020}"
        actions = log_entry(store, version)
        added = [unquote(action["add"]["path"]) for action in actions if "add" in action]
        store.flush([*added, f"{log}.json", f"{log}.checkpoint.parquet", "_delta_log/_last_checkpoint"])
        commits += any(action.get("txn", {}).get("appId") == application for action in actions)
        # An empty entry is one that the log no longer has: everything before it is in a checkpoint.
        if commits == 2 or not actions:
            return


def log_entry(store: Store, version: int) -> list[dict[str, Any]]:
    """Return the actions of an entry of a table's log; an empty list if the log begins later.

    Raises LakeUnavailable.
    """
    try:
        lines = store.read(f"_delta_log/{version:020}.json").splitlines()
    except LakeDamaged:
        return []
    return [json.loads(line) for line in lines if line.strip()]


def file_system(path: str) -> SubTreeFileSystem:
    """Return Arrow's own file system, rooted at the table.

    The file system that deltalake makes calls Python from Arrow's threads; if one of them is about to do so
    when the interpreter ends, the process aborts ("terminate called without an active exception"). Raises
    SettingsInvalid, LakeUnavailable.
    """
    return Store(path).file_system


_PARTS = {"array": ("elementType",), "map": ("keyType", "valueType")}


@dataclass(frozen=True)
class MergedColumns:
    """The changes that a table's columns need.

    `missing`: columns that the table lacks, in whole or in part, with the table's own types where it has
    them. `widened`: all of the table's columns with wider types; None if none is too narrow.
    """

    missing: list[Field]
    widened: Schema | None


def merged_columns(table: Schema, requested: Schema) -> MergedColumns:
    """Return the changes that a table needs to take all values of files with the columns `requested`.

    Readers read a file's narrower column as the table's type. Raises SchemaChanged if neither type is wider,
    or if a name differs from one of the table in case only.
    """
    types = {column.name: _type(column) for column in table.fields}
    _check_case(types, [column.name for column in requested.fields], "")
    missing, widened = [], {}
    for column in requested.fields:
        existing = types.get(column.name)
        if existing is None:
            missing.append(column)
            continue
        merged = _merged(existing, _type(column), column.name)
        widened[column.name] = _reduced(merged, existing)
        # New fields and wider types are two changes: delta-rs adds columns, and tidegate widens types itself.
        if (complete := _narrowed(merged, existing)) != existing:
            missing.append(Field.from_json(json.dumps({**_written(column), "type": complete})))
    fields = [
        {**_written(column), "type": widened.get(column.name, types[column.name])} for column in table.fields
    ]
    wider = json.dumps({"type": "struct", "fields": fields})
    is_wider = any(types[name] != type_ for name, type_ in widened.items())
    return MergedColumns(missing, Schema.from_json(wider) if is_wider else None)


def _written(column: Field) -> dict[str, Any]:
    """Return a column as Delta's protocol writes it."""
    written: dict[str, Any] = json.loads(column.to_json())
    return written


def _type(column: Field) -> Any:
    return _written(column)["type"]


def _kind(type_: Any) -> str:
    kind: str = type_ if isinstance(type_, str) else type_["type"]
    return kind


def _merged(existing: Any, requested: Any, column: str) -> Any:
    """Return the type with all fields, and for all values, of both. Types are as Delta's protocol writes
    them.
    """
    kind = _kind(existing)
    if kind != _kind(requested):
        return _wider(existing, requested, column)
    if kind == "struct":
        fields, added = _fields(existing), _fields(requested)
        _check_case(fields, added, f"{column}.")
        merged = [
            {**field, "type": _merged(field["type"], added[name]["type"], f"{column}.{name}")}
            if name in added
            else field
            for name, field in fields.items()
        ]
        return {**existing, "fields": [*merged, *(added[name] for name in added if name not in fields)]}
    parts = {part: _merged(existing[part], requested[part], column) for part in _PARTS.get(kind, ())}
    return {**existing, **parts} if parts else existing


def _check_case(existing: Iterable[str], requested: Iterable[str], parent: str) -> None:
    """Raise SchemaChanged if a name is new in its case only: Delta takes both for one column."""
    names = {name.lower(): name for name in existing}
    for name in requested:
        was = names.get(name.lower(), name)
        if was != name:
            raise SchemaChanged(
                f"The column {parent}{was} of earlier batches is {parent}{name} now, and a Delta table does "
                "not tell upper from lower case in names",
                f"Write it as {was} again, or give it a name that differs in more than case.",
            )


def _wider(existing: Any, requested: Any, column: str) -> Any:
    if isinstance(existing, str) and isinstance(requested, str):
        arrow = _arrow(existing), _arrow(requested)
        if widens(*arrow):
            return requested
        if widens(*reversed(arrow)):
            return existing
    was, now = _kind(existing), _kind(requested)
    raise SchemaChanged(
        f"The column {column} was {was} in the files of earlier batches, and is {now}",
        "Raise `generation`, or undo the edit; a table for other engines has one type per column.",
    )


def _arrow(primitive: str) -> pa.DataType:
    return pa.field(Field("x", PrimitiveType(primitive)).to_arrow()).type


def _narrowed(merged: Any, existing: Any) -> Any:
    """Return the merged type with the types of the existing one: new fields, and nothing wider."""
    if isinstance(merged, str):
        return existing
    if merged["type"] == "struct":
        existing_fields = _fields(existing)
        fields: Sequence[Mapping[str, Any]] = [
            {**field, "type": _narrowed(field["type"], existing_fields[field["name"]]["type"])}
            if field["name"] in existing_fields
            else field
            for field in merged["fields"]
        ]
        return {**merged, "fields": fields}
    return {
        **merged,
        **{part: _narrowed(merged[part], existing[part]) for part in _PARTS[merged["type"]]},
    }


def _reduced(merged: Any, existing: Any) -> Any:
    """Return the merged type with the fields of the existing one: wider types, and nothing new."""
    if isinstance(merged, str):
        return merged
    if merged["type"] == "struct":
        types = {name: field["type"] for name, field in _fields(merged).items()}
        fields = [
            {**field, "type": _reduced(types[field["name"]], field["type"])} for field in existing["fields"]
        ]
        return {**existing, "fields": fields}
    return {
        **existing,
        **{part: _reduced(merged[part], existing[part]) for part in _PARTS[merged["type"]]},
    }


def _fields(struct: Any) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in struct["fields"]}


def puts_if_absent(store: Store) -> bool:
    """Put a small file twice, both times only if it is absent, and remove it again.

    Returns whether the store refused the second one. A disk always does. Raises LakeUnavailable.
    """
    if not store.is_remote:
        return True
    name = f".tidegate-probe-{uuid4().hex}"
    try:
        # If even the first is refused, the client has sent it again after a lost answer: nobody else knows
        # the name.
        store.put_if_absent(name, b"")
        return not store.put_if_absent(name, b"")
    finally:
        store.delete(name)
