"""The columns that identify records, drop repetitions, and order changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import INTEGERS, ColumnTypes, Type
from tidegate.formats.registry import formats
from tidegate.model import names
from tidegate.model.columns import Column, parse_type, read_columns, require_single
from tidegate.model.mistakes import Fault, did_you_mean, mistake, shown
from tidegate.model.names import Duration
from tidegate.model.nested import type_at
from tidegate.model.schemas import Registry
from tidegate.model.scope import Model, distinct, require_filled, scope_of

_NO_KEYS = {
    "float": "numbers with a fraction have more than one way to be written",
    "double": "numbers with a fraction have more than one way to be written",
    "binary": "bytes are not text",
    **dict.fromkeys(("array", "map", "struct"), "only single values can be keys"),
}


def check_key(name: str, columns: ColumnTypes | None) -> str:
    """Return `name` if it can be a key column, and is not the name of a column that every outbox has.

    Args:
        name: A column, or a path of a field in it.
        columns: The columns that exist; None if they have mistakes themselves; then every name passes.

    Raises a mistake otherwise.
    """
    check_identity(name, columns)
    # A key's columns are in the outbox beside those that every outbox has.
    column = name.rpartition(".")[2]
    if columns is not None and (meaning := names.RESERVED.get(column.lower())):
        fix = "Use another column, or the record's key (`key: null`)."
        raise mistake(f"`{column}` is reserved: in the outbox it is {meaning}", fix)
    return name


def check_identity(name: str, columns: ColumnTypes | None) -> str:
    """Return `name` if it is a column, or the path of a field in one, by which records can be identified.
    Raises a mistake otherwise.

    A column whose type only Spark knows passes here, and is checked in the batch.
    """
    if columns is None:
        return name
    type_ = type_at(name, columns)
    if type_ is not None and (fault := key_fault(name, type_)):
        raise mistake(fault.message, fault.fix)
    return name


def key_fault(name: str, type_: Type) -> Fault | None:
    """Return why a column of this type cannot be a key; None if it can.

    Example: `key_fault("price", DOUBLE)` is a fault, `key_fault("id", BIGINT)` is None.
    """
    if type_.kind not in _NO_KEYS:
        return None
    return Fault(
        f"`{name}` is {type_.text}, and {_NO_KEYS[type_.kind]}", "Use columns such as `string` or `bigint`."
    )


def _check_identity_column(name: str, info: Info) -> str:
    return check_identity(name, scope_of(info).source.columns)


class DeduplicateColumns(Model):
    """Keep the first record per value of the columns, and drop repetitions within `keep` of its timestamp."""

    columns: Annotated[
        tuple[Annotated[str, AfterValidator(_check_identity_column)], ...],
        BeforeValidator(require_filled),
        AfterValidator(distinct),
    ] = Field(description="What a repeated record has in common with the first.")
    keep_ms: Duration = Field(alias="keep", description="For how long after the first one, by timestamps.")


def _check_form(written: Any) -> Any:
    if isinstance(written, dict) or written in ("offset", "root"):
        return written
    ways = "Write `offset`, `root`, or `{columns: [eventId], keep: 1h}`."
    raise mistake(f"{shown(written)} is not known", did_you_mean(str(written), ("offset", "root"), ways))


Deduplicate = Annotated[
    Annotated[
        Annotated[Literal["offset", "root"], Tag("word")] | Annotated[DeduplicateColumns, Tag("columns")],
        Discriminator(lambda written: "word" if isinstance(written, str) else "columns"),
    ],
    BeforeValidator(_check_form),
]

_ORDERED = (*INTEGERS, "string", "date", "timestamp")
_EXAMPLE = 'Write `columns: [version]`, or of Debezium the fields of `source`: `source: "lsn bigint"`.'


def _check_type(name: str, type_: Type | None) -> None:
    """Raise a mistake for a type whose values have no order, or several spellings."""
    if type_ is None or type_.kind in _ORDERED:
        return
    if type_.kind == "decimal" and type_.text.endswith(",0)"):
        return
    fix = "Use whole numbers, `decimal(38,0)`, `string`, `date` or `timestamp`."
    raise mistake(f"`{name}` is {type_.text}, which cannot order changes", fix)


def _check_column(name: str, info: Info) -> str:
    columns = scope_of(info).source.columns
    if columns is not None:
        _check_type(name, type_at(name, columns))
    return name


def _read_fields(written: Any) -> Any:
    """Parse the fields of `source`, which are written as DDL."""
    columns = read_columns(written, "the fields must be one text", 'Write `source: "lsn bigint"`.')
    for column in columns:
        _check_type(column.name, parse_type(column.type))
    return columns


class Sequence(Model):
    """The order of a key's changes. A change that is not later than its key's last one has no effect.

    Columns or fields are compared in the order of the list: a later one counts if the earlier ones are equal.
    """

    columns: (
        Annotated[
            tuple[Annotated[str, AfterValidator(_check_column)], ...],
            BeforeValidator(require_filled),
            AfterValidator(distinct),
        ]
        | None
    ) = Field(default=None, description="Columns that rise with each change of a key.")
    source: (
        Annotated[tuple[Column, ...], BeforeValidator(_read_fields), WithJsonSchema({"type": "string"})]
        | None
    ) = Field(
        default=None,
        description="With Debezium: fields of the envelope's `source` that rise with each change, as "
        "`name type, …`.",
    )
    keep_ms: Duration | None = Field(
        alias="keep",
        default=None,
        description="For how long a deletion drops older changes, by timestamps. Null: forever.",
    )


def check_sequence(sequence: Sequence | None, info: Info) -> Sequence | None:
    """Check that the format has the columns or fields, and that no other option deduplicates.

    Returns the sequence.
    """
    if sequence is None:
        return None
    data = info.data
    # Both or neither.
    if (sequence.columns is None) == (sequence.source is None):
        raise mistake("a sequence is made of `columns`, or of fields of Debezium's `source`", _EXAMPLE)
    format_ = formats().get(data.get("format", ""))
    if format_ is not None and format_.has_envelope and sequence.columns is not None:
        fix = 'Use the position in the log of the database: `source: "lsn bigint"`.'
        raise mistake("a deletion has no row, and so no `columns` that could order it", fix)
    if format_ is not None and not format_.has_envelope and sequence.source is not None:
        raise mistake("only `format: debezium` has an envelope with `source`", "Use `columns: [version]`.")
    if data.get("explode") is not None:
        fix = "Explode in a second pipeline, on what this one sends."
        raise mistake("`sequence` does not go with `explode`: all elements of a record have the same", fix)
    if data.get("deduplicate", "offset") != "offset":
        fix = "Leave `deduplicate` out: a change that comes again is not later than itself."
        raise mistake("`sequence` and `deduplicate` both drop repetitions", fix)
    return sequence


def check_source_key_format(format_: str, info: Info) -> str:
    """Refuse `key_format` for `format: debezium`, which reads its keys itself.

    Raises a mistake for any `key_format` but `text` with `format: debezium`.
    """
    values = formats().get(info.data.get("format", ""))
    if format_ != "text" and values is not None and values.null_key_decoder is not None:
        raise mistake(f"`format: {values.name}` reads its keys itself", "Leave `key_format` out.")
    return format_


def read_key_columns(written: Any, info: Info) -> Any:
    """Parse the columns of keys, which are written as DDL.

    The scope has no columns until they are parsed without a mistake: later fields then do not report missing
    ones.

    Raises a mistake if the columns are missing, cannot be parsed, or the keys are text.
    """
    scope, format_ = scope_of(info).source, info.data.get("key_format")
    if format_ == "text" and written is None:
        return ()
    value_columns, scope.columns = scope.columns, None
    if format_ is None:
        return ()  # the mistake in the format is reported already
    columns = _read(written, format_)
    scope.columns = value_columns
    return columns


def _read(written: Any, format_: str) -> tuple[Column, ...]:
    if format_ == "text":
        fix = "Write `key_format: avro`, `protobuf`, `json` or `kafka` beside it."
        raise mistake("a key that is text has no columns", fix)
    fix = 'Write for example `key_columns: "storeId string, id bigint"`.'
    columns = read_columns(written, f"`key_format: {format_}` needs the key's columns, as one text", fix)
    require_single(format_, columns)
    return columns


def note_key_columns(columns: tuple[Column, ...], info: Info) -> tuple[Column, ...]:
    """Add the key's columns to the scope, for later fields.

    Raises a mistake for a column that the value has, too.
    """
    value_columns = scope_of(info).source.columns
    if columns and value_columns is not None:
        scope_of(info).source.columns = {
            **value_columns,
            **{column.name: parse_type(column.type) for column in columns},
        }
    again = next((column.name for column in columns if value_columns and column.name in value_columns), None)
    if again is not None:
        fix = "Leave it out of one of them: it is then read from the other."
        raise mistake(f"`{again}` is in `columns`, too", fix)
    return columns


def check_key_registry(registry: Registry | None, info: Info) -> Registry | None:
    """Return the registry of keys in Avro or Protobuf, which cannot have a schema file. The default is the
    values' one.

    Raises a mistake if the format of keys has no schemas, or if the strategy needs the names of the keys'
    records.
    """
    format_ = info.data.get("key_format")
    if format_ in (None, "text") or not formats()[format_].needs_schema:
        if registry is not None and format_ is not None:
            raise mistake(f"keys in `{format_}` have no schemas", "Leave `key_registry` out.")
        return registry
    if registry is None:
        values = info.data.get("registry")
        # Not the values' subjects: keys have their own, by topic.
        return Registry(connection=values.connection if values is not None else None)
    if registry.subjects is None and registry.strategy != "topic_name":
        fix = "Name the `subjects` in place of it."
        raise mistake("the names of keys' records are not known", fix)
    return registry
