"""`source.columns`, `metadata` and `headers`: the columns of a source, in values and beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.expressions.arrow import type_of
from tidegate.expressions.types import Type
from tidegate.formats.metadata import METADATA
from tidegate.formats.registry import formats
from tidegate.model import names
from tidegate.model.columns import (
    NESTED,
    Column,
    check_fields,
    parse_type,
    read_columns,
    read_type,
    require_single,
)
from tidegate.model.mistakes import did_you_mean, listed, mistake, shown
from tidegate.model.schemas import schema_columns
from tidegate.model.scope import Model, distinct, scope_of


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
    fix = 'Write `columns: "name type, name type"`.'
    columns = read_columns(written, "the columns must be one text", fix)
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


def _note_value_columns(columns: tuple[Column, ...], info: Info) -> tuple[Column, ...]:
    scope_of(info).source.columns = {column.name: parse_type(column.type) for column in columns} or None
    return columns


Columns = Annotated[
    tuple[Column, ...],
    BeforeValidator(_read_columns),
    AfterValidator(_note_value_columns),
    WithJsonSchema({"type": ["string", "null"]}),
]


if TYPE_CHECKING:
    MetadataName: TypeAlias = str
else:  # a Literal of the registry's names, so that mistakes and the JSON Schema list them
    MetadataName = Literal[tuple(METADATA)]

_FIELDS = f"Use {listed(METADATA)}."
_LIST = {"type": "array", "items": {"enum": [*METADATA]}, "minItems": 1, "uniqueItems": True}
_MAPPING = {"type": "object", "additionalProperties": {"enum": [*METADATA]}, "minProperties": 1}


def _read_metadata(written: Any) -> Any:
    """Return column -> field. A list names fields whose columns have the same names."""
    if written is None:
        return {}
    if isinstance(written, dict) and written:
        return written
    if not isinstance(written, list) or not written:
        fix = "Write `metadata: [topic, offset]`, or `metadata: {kafka_topic: topic}` for other names."
        raise mistake(f"{shown(written)} names no metadata", fix)
    for name in written:
        if name not in METADATA:
            raise mistake(
                f"{shown(name)} is no metadata of Kafka", did_you_mean(str(name), METADATA, _FIELDS)
            )
    return {name: name for name in distinct(tuple(written))}


def _note_metadata(metadata: dict[str, str], info: Info) -> dict[str, str]:
    types = {column: type_of(METADATA[field].type) for column, field in metadata.items()}
    _note_columns(types, info, lambda column: f"metadata: {{kafka_{column}: {metadata[column]}}}")
    return metadata


def _check_type(text: str) -> str:
    """Return the type in Spark's normal form. Raises a mistake if the text of a header cannot be one."""
    type_ = read_type(text)
    if type_.kind in NESTED:
        fix = "Use `string`, or `binary`."
        raise mistake(f"a header is a single value, and not {type_.text}", fix)
    return type_.text


class HeaderColumn(Model):
    """A header by its name. Its bytes are the text of a value of `type`, or with `binary` the value."""

    name: str = Field(min_length=1, description="The name of the header. The last one of the name counts.")
    type: Annotated[str, AfterValidator(_check_type)] = Field(
        description="The type of the column, in Spark's form."
    )

    @property
    def written(self) -> str:
        """The header as a pipeline file has it."""
        return f"{{name: {self.name}, type: {self.type}}}"


def _read_headers(written: Any) -> Any:
    """Return column -> header. A text is the type of the header that has the column's name."""
    if written is None:
        return {}
    if not isinstance(written, dict) or not written:
        fix = "Write `headers: {traceId: string}`, or `headers: {traceId: {name: trace-id, type: string}}`."
        raise mistake(f"{shown(written)} names no headers", fix)
    return {
        column: {"name": column, "type": header} if isinstance(header, str) else header
        for column, header in written.items()
    }


def _note_headers(headers: dict[str, HeaderColumn], info: Info) -> dict[str, HeaderColumn]:
    types = {column: parse_type(header.type) for column, header in headers.items()}
    _note_columns(types, info, lambda column: f"headers: {{{column}_header: {headers[column].written}}}")
    return headers


def _note_columns(types: dict[str, Type], info: Info, renamed: Callable[[str], str]) -> None:
    """Add columns to the scope. Raises a mistake for a name that another column has; case does not count."""
    scope = scope_of(info).source
    if (twice := names.repeated_name(types)) is not None:
        raise mistake(f"`{twice}` appears twice", "Names have to differ in more than case.")
    if scope.columns is None:
        return
    taken = {name.lower() for name in scope.columns}
    scope.columns = {**scope.columns, **types}
    for column in types:
        if column.lower() in taken:
            raise mistake(f"`{column}` is a column already", f"Give it another name: `{renamed(column)}`.")


Metadata = Annotated[
    dict[Annotated[str, AfterValidator(names.check_column)], MetadataName],
    BeforeValidator(_read_metadata),
    AfterValidator(_note_metadata),
    WithJsonSchema({"anyOf": [_LIST, _MAPPING, {"type": "null"}]}),
]
"""Column -> the field of Kafka's record."""


class _OrType:
    """An annotation: the JSON Schema also accepts a text, the type of the header with the column's name."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        return {"anyOf": [handler(schema), {"type": "string"}]}


Headers = Annotated[
    dict[Annotated[str, AfterValidator(names.check_column)], Annotated[HeaderColumn, _OrType()]],
    BeforeValidator(_read_headers),
    AfterValidator(_note_headers),
]
"""Column -> the header."""
