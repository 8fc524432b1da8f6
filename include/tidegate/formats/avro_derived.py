"""Derive an Avro schema from the columns that a stage emits.

Every column, item and field can be null and has null as its default. So a reader with an older or newer
schema can read the records: it ignores fields that it does not have, and fills those that are missing.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tidegate.formats.schemas import Unwritable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCALARS = {
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), "int"),
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def avro_schema(name: str, namespace: str, columns: pa.Schema) -> str:
    """Return the schema of records with these columns, as JSON text.

    Raises Unwritable if a column's name is not a valid name in Avro.
    """
    record = _record(name, columns)
    return json.dumps({"type": "record", "name": name, "namespace": namespace, "fields": record["fields"]})


def _record(name: str, columns: Any) -> dict[str, Any]:
    fields = []
    for column in columns:
        if not _NAME.fullmatch(column.name):
            raise Unwritable(
                f"`{column.name}` is not a valid name in Avro: use letters, digits and _, and no digit first"
            )
        type_ = ["null", _type(column.type, f"{name}_{column.name}")]
        fields.append({"name": column.name, "type": type_, "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _type(type_: pa.DataType, name: str) -> Any:
    """Return the Avro type of a column. `name` names the record if it is one: Avro requires a unique name
    per record.
    """
    if pt.is_struct(type_):
        return _record(name, type_)
    if pt.is_map(type_):
        return {"type": "map", "values": ["null", _type(type_.item_type, f"{name}_item")]}
    if pt.is_list(type_):
        return {"type": "array", "items": ["null", _type(type_.value_type, f"{name}_item")]}
    if pt.is_decimal(type_):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    if pt.is_date(type_):
        return {"type": "int", "logicalType": "date"}
    if pt.is_timestamp(type_):
        kind = "timestamp-micros" if type_.tz else "local-timestamp-micros"
        return {"type": "long", "logicalType": kind}
    return _SCALARS[type_]
