"""The formats of records and messages. Each is declared beside its rules; everything else finds it here.

To add a format, write a module in `formats/` whose `FORMATS` declares it, and name the module in `_MODULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from tidegate.formats.binary import Write
    from tidegate.formats.decoded import Decoder
    from tidegate.formats.protobuf.schema import ProtoSchema
    from tidegate.formats.records import RecordLayout, Records
    from tidegate.formats.schemas import PinnedSchema, SchemaKind, SinkSchema, SourceSchemas

_MODULES = ("json", "csv", "debezium", "avro", "protobuf", "text", "kafka", "cloudevents")


@dataclass(frozen=True)
class SchemaLanguage:
    """The language of a format's schemas. Its functions raise SchemaFault for a schema that cannot be used.

    Args:
        endings: Of schema files; the first one is shown in examples.
        pin: Text and imports of a registry's schema -> the schema as a plan stores it.
        read: A schema file -> the same.
        columns: A schema, and the message in it, -> a column for each field.
        record_name: The full name of a schema's records, as subjects have it; None if it has none.
        check: Raises SchemaFault if columns do not fit a schema and its message; None: columns always fit.
        messages: The messages of a schema's text; None if a schema describes one record only.
        encode: A schema and a value, as JSON, -> a record's bytes; None if JSON does not determine them.
    """

    kind: SchemaKind
    endings: tuple[str, ...]
    pin: Callable[[str, Mapping[str, str]], PinnedSchema]
    read: Callable[[Path], PinnedSchema]
    columns: Callable[[PinnedSchema, str], pa.Schema]
    record_name: Callable[[PinnedSchema], str | None] = lambda _: None
    check: Callable[[pa.Schema, PinnedSchema, str | None], object] | None = None
    messages: Callable[[str], ProtoSchema] | None = None
    encode: Callable[[PinnedSchema, Any], bytes] | None = None


@dataclass(frozen=True)
class MessageSchemas:
    """The functions by which a sink writes messages with a schema.

    Args:
        endings: Of schema files.
        read: A schema file -> the schema of messages.
        derive: Name, namespace, columns and the previous text of the subject -> the schema of the columns.
            Raises Unwritable.
        writer: A schema and columns -> the bytes behind the schema's id, and what writes the rest. Raises
            SchemaFault if the columns do not fit.
    """

    endings: tuple[str, ...]
    read: Callable[[Path], SinkSchema]
    derive: Callable[[str, str, pa.Schema, Callable[[], str]], SinkSchema]
    writer: Callable[[SinkSchema, pa.Schema], tuple[bytes, Write]]


@dataclass(frozen=True)
class Format:
    """A format of values; some are also a format of keys.

    Args:
        decoder: The layout of records -> what decodes their values.
        of_records: Records -> what the decoder gets of each; None: their values.
        attribute_prefix: How columns begin that are no fields of the value; empty: all are.
        key_decoder: Columns and schemas -> what decodes records' own keys; None: keys are not in the format.
        null_key_decoder: Columns and older names -> what decodes the key of a null value; None: JSON, or the
            text of one column.
        columns: The fixed columns of values; None if the pipeline declares them.
        language: The language of its schemas; None if it has none.
        needs_schema: Whether records cannot be read without a schema.
        is_json: Whether values are JSON, whose fields have names, also older ones (`aliases`).
        is_flat: Whether a column is a single value.
        has_envelope: Whether a value is a change in an envelope, which has its own order and deletions.
        renaming: How a user renames a column without `aliases`.
        is_sent: Whether sinks send values in the format.
        data: The format of the data in its events, which a sink wraps when it sends them; None: values are
            written when a batch is computed.
        messages: How sinks write by a schema; None: messages have no schema.
        single: The types of the one column that a value or a key is; empty: it has any number of columns.
        write: The values or keys of a sink -> the messages, of `written` type, without a schema; None: sinks
            write JSON or by a schema.
        key_bytes: The column of a key, and the key as text -> its bytes, for case files; None: the text.
    """

    name: str
    decoder: Callable[[RecordLayout], Decoder]
    of_records: Callable[[Records], Sequence[Any]] | None = None
    attribute_prefix: str = ""
    key_decoder: Callable[[pa.Schema, SourceSchemas], Decoder] | None = None
    null_key_decoder: Callable[[pa.Schema, Mapping[str, Sequence[str]]], Decoder] | None = None
    columns: pa.Schema | None = None
    language: SchemaLanguage | None = None
    needs_schema: bool = False
    is_json: bool = False
    is_flat: bool = False
    has_envelope: bool = False
    renaming: str = ""
    is_sent: bool = False
    data: str | None = None
    messages: MessageSchemas | None = None
    single: tuple[str, ...] = ()
    write: Callable[[pa.StructArray], pa.Array] | None = None
    written: pa.DataType = field(default_factory=pa.string)
    key_bytes: Callable[[pa.Field, str], bytes] | None = None


@cache
def formats() -> Mapping[str, Format]:
    """Return all formats by their name in pipeline files.

    Example: `formats()["csv"].is_flat` is True.
    """
    # late: the modules import this one
    modules = (import_module(f"tidegate.formats.{name}") for name in _MODULES)
    return {format_.name: format_ for module in modules for format_ in module.FORMATS}


def names_of_formats(has: Callable[[Format], object] = lambda _: True) -> tuple[str, ...]:
    """Return the names of the formats that `has` is true of.

    Example: `names_of_formats(lambda f: f.needs_schema)` is `("avro", "protobuf")`.
    """
    return tuple(name for name, format_ in formats().items() if has(format_))


def language_of(kind: str) -> SchemaLanguage:
    """Return a language of schemas.

    Example: `language_of("AVRO")`, as registries call it.
    """
    languages = (format_.language for format_ in formats().values())
    return next(language for language in languages if language is not None and language.kind == kind)
