"""`source.columns`: from the file, or from the schema of the values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.expressions.arrow import type_of
from tidegate.formats.registry import formats
from tidegate.model.columns import Column, check_fields, parse_columns, parse_type, require_single
from tidegate.model.mistakes import as_mistake, mistake
from tidegate.model.schemas import schema_columns
from tidegate.model.scope import scope_of


def _read_columns(written: Any, info: Info) -> Any:
    """Read the columns from DDL or the schema. `string` and `bytes` have the single column `value`."""
    format_ = formats().get(info.data.get("format", ""))
    if format_ is not None and format_.columns is not None:
        if written is not None:
            raise mistake(f"`format: {format_.name}` has the one column `value`", "Leave `columns` out.")
        return tuple(Column(name=field.name, type=type_of(field.type).text) for field in format_.columns)
    if format_ is None and written is None:
        return ()  # the mistake in the format is reported already
    needs_schema = format_ is not None and format_.needs_schema
    if written is None and (needs_schema or _has_schema(info)):
        return schema_columns(None, info)
    if written is None:
        fix = 'Write for example `columns: "storeId string, id bigint, quantity int"`.'
        raise mistake(f"`format: {info.data['format']}` needs its columns", fix)
    if not isinstance(written, str):
        raise mistake("the columns must be one text", 'Write `columns: "name type, name type"`.')
    columns, faults = parse_columns(written)
    if faults:
        raise as_mistake(faults)
    if format_ is not None and format_.is_flat:
        check_fields(columns)
        require_single(format_.name, columns)
    if format_ is not None and (prefix := format_.attribute_prefix):
        check_fields((column for column in columns if column.name.startswith(prefix)), "an attribute")
    return schema_columns(columns, info) if needs_schema else columns


def _has_schema(info: Info) -> bool:
    """Return whether the source has a schema, or would have one without a mistake in its field."""
    fields = info.data
    return (
        scope_of(info).source.reader is not None
        or fields.get("registry") is not None
        or "schema_file" not in fields
    )


def _note_columns(columns: tuple[Column, ...], info: Info) -> tuple[Column, ...]:
    scope_of(info).source.columns = {column.name: parse_type(column.type) for column in columns} or None
    return columns


Columns = Annotated[
    tuple[Column, ...],
    BeforeValidator(_read_columns),
    AfterValidator(_note_columns),
    WithJsonSchema({"type": ["string", "null"]}),
]
