"""`key_format`, `key_columns` and `key_registry`: columns that are read from records' own keys."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo as Info

from tidegate.formats.registry import formats
from tidegate.spec.columns import Column, parse_columns, parse_type
from tidegate.spec.mistakes import as_mistake, mistake
from tidegate.spec.schemas import Registry
from tidegate.spec.scope import scope_of


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
    scope, format_ = scope_of(info), info.data.get("key_format")
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
        fix = "Write `key_format: avro`, `protobuf` or `json` beside it."
        raise mistake("a key that is text has no columns", fix)
    if not isinstance(written, str):
        fix = 'Write for example `key_columns: "storeId string, id bigint"`.'
        raise mistake(f"`key_format: {format_}` needs the key's columns, as one text", fix)
    columns, faults = parse_columns(written)
    if faults:
        raise as_mistake(faults)
    return columns


def note_key_columns(columns: tuple[Column, ...], info: Info) -> tuple[Column, ...]:
    """Add the key's columns to the scope, for later fields.

    Raises a mistake for a column that the value has, too.
    """
    value_columns = scope_of(info).columns
    if columns and value_columns is not None:
        scope_of(info).columns = {
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
