"""The columns of a Delta table, and of files that are to be added: what it lacks, and what is too narrow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType

from tidegate.core.widening import widens
from tidegate.errors import SchemaChanged

_PARTS = {"array": ("elementType",), "map": ("keyType", "valueType")}


@dataclass(frozen=True)
class MergedColumns:
    """What has to be done to a table's columns. `missing`: columns that it lacks, in whole or in part, of its
    own types where it has them. `widened`: all of its columns, with wider types; None: none is too narrow.
    """

    missing: list[Field]
    widened: Schema | None


def merged_columns(table: Schema, requested: Schema) -> MergedColumns:
    """What a table needs, so that it has all values of files with the columns `requested`.

    Narrower columns of files are read as the table's. Raises SchemaChanged where neither type is the wider.
    """
    types = {column.name: _type(column) for column in table.fields}
    missing, widened = [], {}
    for column in requested.fields:
        existing = types.get(column.name)
        if existing is None:
            missing.append(column)
            continue
        merged = _merged(existing, _type(column), column.name)
        widened[column.name] = _of_shape(merged, existing)
        if (complete := _of_types(merged, existing)) != existing:
            missing.append(Field.from_json(json.dumps({**_written(column), "type": complete})))
    fields = [
        {**_written(column), "type": widened.get(column.name, types[column.name])} for column in table.fields
    ]
    wider = json.dumps({"type": "struct", "fields": fields})
    is_wider = any(types[name] != type_ for name, type_ in widened.items())
    return MergedColumns(missing, Schema.from_json(wider) if is_wider else None)


def _written(column: Field) -> dict[str, Any]:
    """A column as Delta's protocol writes it."""
    written: dict[str, Any] = json.loads(column.to_json())
    return written


def _type(column: Field) -> Any:
    return _written(column)["type"]


def _kind(type_: Any) -> str:
    kind: str = type_ if isinstance(type_, str) else type_["type"]
    return kind


def _merged(existing: Any, requested: Any, column: str) -> Any:
    """The type that has all fields, and takes all values, of both. Types are as the protocol writes them."""
    kind = _kind(existing)
    if kind != _kind(requested):
        return _wider(existing, requested, column)
    if kind == "struct":
        own, others = _fields(existing), _fields(requested)
        fields = [
            {**field, "type": _merged(field["type"], others[name]["type"], f"{column}.{name}")}
            if name in others
            else field
            for name, field in own.items()
        ]
        return {**existing, "fields": [*fields, *(others[name] for name in others if name not in own)]}
    parts = {part: _merged(existing[part], requested[part], column) for part in _PARTS.get(kind, ())}
    return {**existing, **parts} if parts else existing


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
        "Raise `generation`, or undo the edit; a table for others has one type for a column.",
    )


def _arrow(primitive: str) -> pa.DataType:
    return pa.field(Field("x", PrimitiveType(primitive)).to_arrow()).type


def _of_types(merged: Any, existing: Any) -> Any:
    """The merged type with the types of what exists: new fields, and nothing wider."""
    if isinstance(merged, str):
        return existing
    if merged["type"] == "struct":
        own = _fields(existing)
        fields: Sequence[Mapping[str, Any]] = [
            {**field, "type": _of_types(field["type"], own[field["name"]]["type"])}
            if field["name"] in own
            else field
            for field in merged["fields"]
        ]
        return {**merged, "fields": fields}
    return {**merged, **{part: _of_types(merged[part], existing[part]) for part in _PARTS[merged["type"]]}}


def _of_shape(merged: Any, existing: Any) -> Any:
    """The merged type with the fields of what exists: wider types, and nothing new."""
    if isinstance(merged, str):
        return merged
    if merged["type"] == "struct":
        types = {name: field["type"] for name, field in _fields(merged).items()}
        fields = [
            {**field, "type": _of_shape(types[field["name"]], field["type"])} for field in existing["fields"]
        ]
        return {**existing, "fields": fields}
    return {**existing, **{part: _of_shape(merged[part], existing[part]) for part in _PARTS[merged["type"]]}}


def _fields(struct: Any) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in struct["fields"]}
