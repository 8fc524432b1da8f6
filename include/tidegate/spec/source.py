"""`source`: which records are read, and what they are made of."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    StrictInt,
    WithJsonSchema,
    model_validator,
)
from pydantic import ValidationInfo as Info

from tidegate.schemas.pinned import SourceSchemas, WriterSchema
from tidegate.spec import names
from tidegate.spec.aliases import ColumnAliases, check_aliases
from tidegate.spec.columns import Column, parse_columns, parse_type
from tidegate.spec.connection import Connection
from tidegate.spec.csv import Csv, check_fields, read_csv
from tidegate.spec.deduplicate import Deduplicate
from tidegate.spec.keys import check_key
from tidegate.spec.mistakes import as_mistake, listed, mistake, shown
from tidegate.spec.schemas import (
    BINARY,
    Registry,
    check_message,
    check_registry,
    read_schema_file,
    record_name,
    schema_columns,
)
from tidegate.spec.scope import Model, Topic, among, distinct, filled, scope_of
from tidegate.spec.sequence import Sequence, check_sequence
from tidegate.spec.source_keys import (
    check_key_registry,
    check_source_key_format,
    note_key_columns,
    read_key_columns,
)

# what datetime.fromisoformat reads alike in every Python
_INSTANT = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{3}(?:\d{3})?)?)?)(?P<zone>Z|[+-]\d\d:\d\d)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WITH_ALIASES = ("json", "debezium")
_RENAMED = {
    "avro": "Rename it in the reader's schema, with its older names as `aliases` there.",
    "protobuf": "Rename it in the message: its fields are known by their numbers.",
    "csv": "Rename it in `columns`: fields of CSV are known by their places.",
}
"""How a column gets another name where records do not have its name, or say its older ones elsewhere."""
_START = "Write `earliest`, `latest`, `2026-01-31T00:00:00Z`, or milliseconds since 1970."


def _read_columns(written: Any, info: Info) -> Any:
    """DDL to columns, as the format wants it: `string` and `bytes` have the one column `value`."""
    format_ = info.data.get("format")
    if format_ in ("string", "bytes"):
        if written is not None:
            raise mistake(f"`format: {format_}` has the one column `value`", "Leave `columns` out.")
        return (Column(name="value", type="string" if format_ == "string" else "binary"),)
    if written is None and (format_ in BINARY or _has_schema(info)):
        return schema_columns(None, info)
    if written is None and format_ in ("json", "csv", "debezium"):
        fix = 'Write for example `columns: "storeId string, id bigint, quantity int"`.'
        raise mistake(f"`format: {format_}` needs its columns", fix)
    if written is None:
        return ()  # the format is wrong, and that is said already
    if not isinstance(written, str):
        raise mistake("the columns are one text", 'Write `columns: "name type, name type"`.')
    columns, faults = parse_columns(written)
    if faults:
        raise as_mistake(faults)
    if format_ == "csv":
        check_fields(columns)
    return schema_columns(columns, info) if format_ in BINARY else columns


def _check_aliases(aliases: dict[str, tuple[str, ...]], info: Info) -> dict[str, tuple[str, ...]]:
    format_ = info.data.get("format")
    if aliases and format_ not in (*_WITH_ALIASES, None):
        fix = f"Leave it out: records have older names in {listed(_WITH_ALIASES)}."
        raise mistake(f"`aliases` does not go with `format: {format_}`", _RENAMED.get(str(format_), fix))
    return check_aliases(aliases, scope_of(info).columns)


def _has_schema(info: Info) -> bool:
    """Or would have one, if it had no mistake."""
    fields = info.data
    return (
        scope_of(info).reader is not None or fields.get("registry") is not None or "schema_file" not in fields
    )


def _known_key(name: str, info: Info) -> str:
    return check_key(name, scope_of(info).columns)


def _is_array(name: str | None, info: Info) -> str | None:
    """An array column, of which each element becomes a record: from here on the column is one element."""
    known = scope_of(info).columns
    if name is None or known is None:
        return name
    if info.data.get("format") == "debezium":
        fix = "Leave it out, and explode in a second pipeline with `format: json` on what this one sends."
        raise mistake("`explode` does not go with `format: debezium`: a deletion has no elements", fix)
    if name not in known:
        raise mistake(f"the column `{name}` does not exist", among(name, known))
    type_ = known[name]
    if type_ is None or type_.kind != "array":
        arrays = [each for each, its in known.items() if its and its.kind == "array"]
        fix = f"Name an array: {listed(arrays)}." if arrays else "Declare it as `array<…>`, or leave it out."
        raise mistake(f"`{name}` is {type_.text if type_ else 'no array'}, and has no elements", fix)
    scope_of(info).columns = {**known, name: type_.parts[0]}
    return name


def _read_start(written: Any) -> Any:
    """`earliest`, `latest`, epoch milliseconds, or ISO 8601 with a zone, which becomes milliseconds."""
    if isinstance(written, str) and written not in ("earliest", "latest"):
        return _milliseconds(written)
    if isinstance(written, str) or (type(written) is int and 0 <= written < 2**47):
        return written
    raise mistake(f"{shown(written)} is not a place to start", _START)


def _milliseconds(text: str) -> int:
    """Since 1970, of a time with a zone."""
    found = _INSTANT.fullmatch(text)
    if found and not found["zone"]:
        raise mistake(f"{text!r} has no time zone", f"Write it with one: `{text}Z`.")
    try:
        at = datetime.fromisoformat(found["time"] + found["zone"].replace("Z", "+00:00") if found else "")
    except ValueError:
        raise mistake(f"{text!r} is not a place to start", _START) from None
    if at < _EPOCH:
        raise mistake(f"{text!r} is before 1970", _START)
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _known_time(name: str, info: Info) -> str:
    """`record`, or a column that can be a time."""
    types = scope_of(info).columns
    if name == "record" or types is None:
        return name
    if name not in types:
        raise mistake(f"the column `{name}` does not exist", among(name, ["record", *types]))
    type_ = types[name]
    if type_ is not None and type_.text not in ("bigint", "timestamp"):
        fix = "Use a `bigint` column with milliseconds since 1970, or a `timestamp` column."
        raise mistake(f"`{name}` is {type_.text}, which is not a time", fix)
    return name


def _note_connection(name: str | None, info: Info) -> str | None:
    scope_of(info).connection = name
    return name


def _note_topics(topics: tuple[str, ...], info: Info) -> tuple[str, ...]:
    scope_of(info).topics = topics
    return topics


def _note_columns(columns: tuple[Column, ...], info: Info) -> tuple[Column, ...]:
    scope_of(info).columns = {column.name: parse_type(column.type) for column in columns} or None
    return columns


def _note_key(key: tuple[str, ...] | None, info: Info) -> tuple[str, ...] | None:
    scope_of(info).key = distinct(key or ())
    return key


Topics = Annotated[
    tuple[Topic, ...], BeforeValidator(filled), AfterValidator(distinct), AfterValidator(_note_topics)
]
Columns = Annotated[
    tuple[Column, ...],
    BeforeValidator(_read_columns),
    AfterValidator(_note_columns),
    WithJsonSchema({"type": ["string", "null"]}),
]
Start = Annotated[
    Literal["earliest", "latest"] | int,
    BeforeValidator(_read_start),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["earliest", "latest"]},
                {"type": "integer"},
                {"pattern": r"^\d{4}-\d\d-\d\d[T ]"},
            ]
        }
    ),
]


class Source(Model):
    """Which records are read, and what they are made of. `explode` names an array column: inside of `key`,
    `timestamp`, `deduplicate` and the stages' expressions that column is one of its elements.

    `connection`: the Kafka cluster that it is in, by its name; where that is, is never in the file.
    """

    connection: Annotated[
        Annotated[str, AfterValidator(names.check_kafka_connection)] | None, AfterValidator(_note_connection)
    ] = Field(default=None, description="The Kafka cluster, by its name. Null: the one without a name.")
    topics: Topics = Field(description="The topics that are read.")
    format: Literal["json", "csv", "debezium", "avro", "protobuf", "string", "bytes"] = Field(
        description="What a record's value is. `csv`: one row. `debezium`: the JSON of a change to a row. "
        "`string` and `bytes` have the one column `value`."
    )
    schema_file: Annotated[str | None, AfterValidator(read_schema_file)] = Field(
        alias="schema",
        default=None,
        description="The file of the schema of Avro (`.avsc`), Protobuf (`.proto`, `.desc`) or JSON "
        "(`.json`), from here. With a registry it is the reader's schema.",
    )
    message: Annotated[str | None, AfterValidator(check_message)] = Field(
        default=None, description="The message of Protobuf that a record is, in full: `shop.Stock`."
    )
    registry: Annotated[Registry | None, AfterValidator(check_registry)] = Field(
        default=None,
        description="The schema registry whose ids records of Avro, Protobuf or JSON begin with.",
    )
    columns: Columns = Field(
        default=None,  # type: ignore[arg-type]  # resolved while reading
        description="The columns of records, or of Debezium's rows: `name type, …`, in Spark's types. Of a "
        "schema file they are its fields, unless they are given.",
    )
    csv: Annotated[Csv | None, BeforeValidator(read_csv)] = Field(
        default=None, description="How the rows of `format: csv` are written."
    )
    explode: Annotated[str | None, AfterValidator(_is_array)] = Field(
        default=None, description="An array column, of which each element becomes a record."
    )
    aliases: Annotated[dict[str, ColumnAliases], AfterValidator(_check_aliases)] = Field(
        default={},
        description="What columns were called before: records with an older name are read, too.",
    )
    key_format: Annotated[
        Literal["text", "json", "avro", "protobuf"], AfterValidator(check_source_key_format)
    ] = Field(
        default="text",
        description="What a record's own key is: `text`, or an object, a record or a message with columns.",
    )
    key_columns: Annotated[
        tuple[Column, ...],
        BeforeValidator(read_key_columns),
        AfterValidator(note_key_columns),
        WithJsonSchema({"type": ["string", "null"]}),
    ] = Field(
        default=None,  # type: ignore[arg-type]  # resolved while reading
        description="The columns of records' own keys: `name type, …`, beside those of the value.",
    )
    key_registry: Annotated[Registry | None, AfterValidator(check_key_registry)] = Field(
        default=None,
        description="Of keys in Avro or Protobuf: the schema registry. Null: the one of the values.",
    )
    key: Annotated[
        tuple[Annotated[str, AfterValidator(_known_key)], ...] | None,
        BeforeValidator(filled),
        AfterValidator(_note_key),
    ] = Field(default=None, description="The columns of the key. Null: the record's own key, as text.")
    timestamp: Annotated[str, AfterValidator(_known_time)] = Field(
        default="record",
        description="When it happened: `record`, Kafka's timestamp, or a column: epoch ms or a timestamp.",
    )
    deduplicate: Deduplicate = Field(
        default="offset",
        description="By what a repeated record is known: its offset, its root position, or columns.",
    )
    sequence: Annotated[Sequence | None, AfterValidator(check_sequence)] = Field(
        default=None,
        description="What tells the order of a key's changes, where it is not the log's. Null: the log's.",
    )
    max_records: Annotated[StrictInt, Field(ge=1, lt=2**63)] | None = Field(
        default=None, description="The most records of a batch. Null: no bound."
    )
    start: Start = Field(
        default="earliest",
        description="Where the first batch begins: `earliest`, `latest`, a time with a zone, or epoch ms.",
    )

    _schemas: SourceSchemas = PrivateAttr(default_factory=SourceSchemas)
    _key_schemas: SourceSchemas = PrivateAttr(default_factory=SourceSchemas)

    @model_validator(mode="after")
    def _keep_schema(self, info: Info) -> Source:
        self._schemas = SourceSchemas(scope_of(info).reader)
        return self

    @property
    def schemas(self) -> SourceSchemas:
        """By what records are decoded. Those of the registry are there once a batch is planned."""
        return self._schemas

    @property
    def subjects(self) -> tuple[str, ...]:
        """Those of the registry that its records are written by."""
        record = record_name(self.format, self._schemas.reader, self.message)
        return self.registry.subjects_of(self.topics, record) if self.registry is not None else ()

    @property
    def registries(self) -> tuple[Registry, ...]:
        """Those of its values and of its keys."""
        return tuple(registry for registry in (self.registry, self.key_registry) if registry is not None)

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """Those of values, and of records' own keys."""
        return (*self.columns, *self.key_columns)

    @property
    def key_schemas(self) -> SourceSchemas:
        """By what records' own keys are decoded, once a batch is planned."""
        return self._key_schemas

    @property
    def key_subjects(self) -> tuple[str, ...]:
        """Those that records' own keys are written by."""
        return self.key_registry.subjects_of(self.topics, None, "key") if self.key_registry else ()

    def with_writers(
        self, writers: tuple[WriterSchema, ...] | None, of_keys: tuple[WriterSchema, ...] | None = None
    ) -> Source:
        """The source with the registry's schemas as they are now. None: it has none."""
        source = self.model_copy()
        source._schemas = SourceSchemas(self._schemas.reader, writers)
        source._key_schemas = SourceSchemas(None, of_keys)
        return source

    @property
    def cluster(self) -> Connection:
        """The Kafka cluster that it is in."""
        return Connection("kafka", self.connection)
