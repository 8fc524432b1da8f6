"""`format`, `schema`, `message` and `key_format` of a Kafka sink: the formats and schemas of its messages.

A schema file is beside the pipeline file. It is read with it, and checked against the sink's columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import ANY, Type
from tidegate.formats.avro_write import avro_writer
from tidegate.formats.payload import KeyFormat, SinkFormat, SinkSchema
from tidegate.formats.protobuf_write import protobuf_writer
from tidegate.schemas.avro import parse_avro
from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.protobuf import proto_from_json, proto_to_json
from tidegate.spec.arrow import arrow_type
from tidegate.spec.mistakes import listed, mistake
from tidegate.spec.payload import BY_REGISTRY, SinkRegistry
from tidegate.spec.schemas import (
    imported_texts,
    message_of,
    require_schema_file,
    schema_path,
    schema_text,
)
from tidegate.spec.scope import StageScope, scope_of
from tidegate.spec.stage import WINDOW_COLUMNS

_ENDINGS = {"avro": (".avsc",), "protobuf": (".proto",)}
_FIX = "Select the columns as the schema has them, in the types of the table in docs/messages.md."


def stage_of(info: Info) -> StageScope:
    """Return the facts about the stage of the sink; an empty scope if the stage is unknown."""
    stages = scope_of(info).stages
    name = info.data.get("stage", "")
    candidates = stages[-1:] if name is None else [stage for stage in stages if stage.name == name]
    return candidates[0] if candidates else StageScope()


def check_format(format_: SinkFormat, info: Info) -> SinkFormat:
    """Check that the stage fits a format: an envelope needs the last emitted value, a schema needs
    all types.
    """
    if format_ == "debezium":
        _require_memory(info, "Use `format: json`, or a stage that keeps what it emitted.")
    if format_ in BY_REGISTRY:
        stage = stage_of(info)
        _require_types({**((info.data.get("with_key") and stage.keys) or {}), **(stage.emitted or {})})
    return format_


def check_envelope(enveloped: bool, info: Info) -> bool:
    """Allow `envelope` for formats that have a schema only: JSON's envelope is the format `debezium`."""
    format_ = info.data.get("format")
    if enveloped and format_ is not None:
        if format_ not in BY_REGISTRY:
            fix = "Write `format: debezium` for an envelope as JSON, and leave it out."
            raise mistake(f"`envelope` does not go with `format: {format_}`", fix)
        _require_memory(info, "Leave it out, or use a stage that keeps what it emitted.")
    return enveloped


def _require_memory(info: Info, fix: str) -> None:
    stage = stage_of(info)
    if stage.forgets:
        raise mistake(f"the value before is unknown: {stage.forgets}", fix)


def check_key_format(format_: KeyFormat, info: Info) -> KeyFormat:
    """Check that the key has columns of known types, which every format but `text` needs."""
    if format_ != "text":
        keys = stage_of(info).keys
        if keys == {}:
            fix = "Name the key's columns in `source.key`, or leave `key_format` out."
            raise mistake("the key has no columns: it is the record's own, as text", fix)
        _require_types(keys or {})
    return format_


def _require_types(columns: Mapping[str, Type | None]) -> None:
    untold = [name for name, type_ in columns.items() if type_ is None or ANY.text in type_.text]
    if untold:
        fix = f"Select it with a type, such as `{untold[0]}: cast({untold[0]} as bigint)`."
        raise mistake(f"the type of {listed(untold)} cannot be told from this file", fix)


def check_registry_of_sink(registry: SinkRegistry | None, info: Info) -> SinkRegistry | None:
    """Check that messages whose schema follows from columns have a registry: readers cannot get it elsewhere.

    Returns the registry, which is the one without a name if none is given. A schema file needs none.
    """
    format_, key_format, file = (info.data.get(name, "") for name in ("format", "key_format", "schema_file"))
    # `file` may be None, which is a value; "" stands for a field with mistakes.
    if "" in (format_, key_format, file):
        return registry  # the mistake is reported already
    if registry is not None and format_ not in BY_REGISTRY and key_format not in BY_REGISTRY:
        fix = "Leave it out, or write `format: avro` or `format: protobuf`."
        raise mistake(f"messages in `{format_}` have no schema in a registry", fix)
    if registry is None and file is not None and key_format in BY_REGISTRY:
        fix = "Write `registry: {}`: values then begin with the id of their schema, too."
        raise mistake(f"keys in `{key_format}` need a registry: their schema follows from the columns", fix)
    if registry is None and file is None and (format_ in BY_REGISTRY or key_format in BY_REGISTRY):
        return SinkRegistry()
    return registry


# the file


def read_sink_schema(name: str | None, info: Info) -> str | None:
    """Read the schema file of a sink, check it against the sink's columns, and note it in the scope.

    Returns the name. Raises a mistake if the file is missing, not a schema, or does not fit the columns.
    """
    scope, format_ = scope_of(info), info.data.get("format")
    # Sinks share the scope: the schema of the sink before must not stay.
    scope.sink_schema = None
    if name is None or format_ is None:
        return name
    if format_ not in BY_REGISTRY:
        fix = "Leave it out, or write `format: avro` or `format: protobuf`."
        raise mistake(f"`format: {format_}` has no schema file", fix)
    if info.data.get("enveloped"):
        fix = "Leave it out: the schema of an envelope follows from the columns."
        raise mistake("an envelope has no schema file", fix)
    path = schema_path(name, format_, _ENDINGS[format_], scope.folder)
    require_schema_file(name, path)
    try:
        scope.sink_schema = _read(format_, path)
        if format_ == "avro" and (columns := _columns(info)) is not None:
            avro_writer(parse_avro(scope.sink_schema.text), columns)
    except SchemaFault as fault:
        raise mistake(f"{name}: {fault}", _FIX) from None
    return name


def _read(format_: str, path: Path) -> SinkSchema:
    text = schema_text(path)
    if format_ == "avro":
        parse_avro(text)
        return SinkSchema(None, text)
    from tidegate.schemas.proto_files import proto_schema  # late: an extra

    imports = dict(imported_texts(path.parent, text))
    compiled = proto_to_json(proto_schema(text, imports))
    return SinkSchema(None, text, tuple(imports.items()), compiled)


def check_sink_message(name: str | None, info: Info) -> str | None:
    """Return the message of the `.proto` file for values: the named one, or the only one.

    Raises a mistake if there is none, or if it does not fit the sink's columns.
    """
    schema, format_ = scope_of(info).sink_schema, info.data.get("format")
    if name is not None and format_ is not None and "schema_file" in info.data:
        if format_ != "protobuf":
            raise mistake(f"`format: {format_}` has no messages", "Leave `message` out.")
        if info.data["schema_file"] is None:
            raise mistake("there is no file with that message", "Write `schema:` beside it.")
    if schema is None or format_ != "protobuf":
        return name
    compiled = proto_from_json(schema.compiled)
    message = message_of(compiled, name)
    columns = _columns(info)
    try:
        if columns is not None:
            protobuf_writer(compiled, message, columns)
    except SchemaFault as fault:
        raise mistake(f"{info.data['schema_file']}: {fault}", _FIX) from None
    return message


def _columns(info: Info) -> pa.Schema | None:
    """Return the columns of the sink's values; None if they are unknown because of other mistakes."""
    stage, with_key = stage_of(info), info.data.get("with_key")
    if stage.emitted is None or with_key is None or (with_key and stage.keys is None):
        return None
    types = {name: _arrow(type_) for name, type_ in stage.emitted.items()}
    if with_key:
        types = {name: _arrow(type_) for name, type_ in (stage.keys or {}).items()} | types
        types |= dict.fromkeys(set(WINDOW_COLUMNS if stage.windowed else ()) - set(types), pa.int64())
    return pa.schema(list(types.items()))


def _arrow(type_: Type | None) -> pa.DataType:
    assert type_ is not None, "`check_format` has asked for it"
    return arrow_type(type_)
