"""`source`: which records a pipeline reads, and how they are decoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    model_validator,
)
from pydantic import ValidationInfo as Info

from tidegate.expressions import Expression
from tidegate.expressions.arrow import arrow_type, type_of
from tidegate.expressions.types import ColumnTypes
from tidegate.formats.csv import Csv
from tidegate.formats.metadata import RecordMetadata
from tidegate.formats.registry import formats, names_of_formats
from tidegate.formats.schemas import SourceSchemas, WriterSchema
from tidegate.formats.times import TimeRule
from tidegate.model import names
from tidegate.model.columns import Column, ColumnAliases, check_aliases, parse_type
from tidegate.model.condition import OFFER, compiled_expression, parse_condition
from tidegate.model.connection import Connection
from tidegate.model.keys import (
    Deduplicate,
    DeduplicateColumns,
    Sequence,
    check_key,
    check_key_registry,
    check_sequence,
    check_source_key_format,
    note_key_columns,
    read_key_columns,
)
from tidegate.model.mistakes import as_mistake, listed, mistake
from tidegate.model.nested import NamedByPath, named_columns, type_at, with_type_at
from tidegate.model.options import read_as
from tidegate.model.schemas import Registry, check_message, check_registry, read_schema_file, record_name
from tidegate.model.scope import Model, scope_of
from tidegate.model.source_columns import Columns, Headers, Metadata
from tidegate.model.sources import (
    TopicPattern,
    Topics,
    check_connection,
    check_topics,
    only_alone,
    open_source,
    reads,
)
from tidegate.model.timestamps import Start, Timestamp, TimestampColumn

_KEY_FORMATS = ("text", *names_of_formats(lambda format_: format_.key_decoder))
if TYPE_CHECKING:
    SourceFormat: TypeAlias = str
    SourceKeyFormat: TypeAlias = str
else:  # a Literal of the registry's names, so that mistakes and the JSON Schema list them
    SourceFormat = Literal[names_of_formats()]
    SourceKeyFormat = Literal[_KEY_FORMATS]
_IN_SPARK = "Write it into the first stage's `filter`, where Spark tests it."


def _check_aliases(aliases: dict[str, tuple[str, ...]], info: Info) -> dict[str, tuple[str, ...]]:
    format_ = formats().get(info.data.get("format", ""))
    if aliases and format_ is not None and not format_.is_json:
        with_aliases = listed(names_of_formats(lambda format_: format_.is_json))
        fix = format_.renaming or f"Leave it out: records have older names in {with_aliases}."
        raise mistake(f"`aliases` does not go with `format: {format_.name}`", fix)
    return check_aliases(aliases, scope_of(info).source.columns)


def _check_key(name: str, info: Info) -> str:
    return check_key(name, scope_of(info).source.columns)


def _is_array(name: str | None, info: Info) -> str | None:
    """Check that the exploded column is an array.

    Later fields see the column with the type of its elements.
    """
    columns = scope_of(info).source.columns
    if name is None or columns is None:
        return name
    format_ = formats().get(info.data.get("format", ""))
    if format_ is not None and format_.has_envelope:
        fix = (
            "Leave it out, and explode in a second pipeline with `format: json` that reads this one's output."
        )
        raise mistake("`explode` does not go with `format: debezium`: a deletion has no elements", fix)
    type_ = type_at(name, columns)
    if type_ is None or type_.kind != "array":
        arrays = [column for column, kind in columns.items() if kind and kind.kind == "array"]
        fix = f"Name an array: {listed(arrays)}." if arrays else "Declare it as `array<…>`, or leave it out."
        raise mistake(f"`{name}` is {type_.text if type_ else 'no array'}, and has no elements", fix)
    scope_of(info).source.columns = with_type_at(name, columns, type_.parts[0])
    return name


def _check_filter(text: str, info: Info) -> str:
    """Check the condition that is tested where a record is decoded, before its key and its time are."""
    columns = scope_of(info).source.columns
    _, faults = parse_condition(text, columns)
    if faults:
        raise as_mistake([replace(fault, fix=_IN_SPARK) if fault.fix == OFFER else fault for fault in faults])
    if columns is not None and compiled_expression(text, columns) is None:
        raise mistake("the source cannot test this on whole columns of records", _IN_SPARK)
    return text


def _check_deduplicate(rule: str | DeduplicateColumns, info: Info) -> str | DeduplicateColumns:
    """Note how the source recognizes repetitions. Columns may do that only in the single source."""
    if isinstance(rule, DeduplicateColumns):
        return only_alone(rule, "`deduplicate` by columns", info)
    scope_of(info).source.repeats = rule
    return rule


def _check_sequence(sequence: Sequence | None, info: Info) -> Sequence | None:
    checked = check_sequence(sequence, info)
    if checked is not None and scope_of(info).source.keeps_null_keys:
        fix = "Leave `sequence` out, or let records without a key go into quarantine."
        raise mistake("records without a key are changes of nothing, which `sequence` could order", fix)
    return checked if checked is None else only_alone(checked, "`sequence`", info)


def _note_key(key: tuple[str, ...] | None, info: Info) -> tuple[str, ...] | None:
    scope = scope_of(info).source
    named = named_columns(key or (), scope.columns)
    scope.nested = {name: path for name, path in named.items() if name != path}
    if scope.columns is not None:
        types = {name: type_at(path, scope.columns) for name, path in scope.nested.items()}
        scope.columns = {**scope.columns, **types}
    scope.key = tuple(named)
    return None if key is None else tuple(named)


def _check_coerce(coerce: bool, info: Info) -> bool:
    format_ = info.data.get("format", "json")
    if coerce and format_ != "json":
        fix = "Leave it out: only `format: json` has types of its own."
        raise mistake(f"`coerce` does not go with `format: {format_}`", fix)
    if coerce and (info.data.get("schema_file") is not None or info.data.get("registry") is not None):
        raise mistake("records that satisfy a schema are not converted", "Leave `coerce` or the schema out.")
    return coerce


def _check_null_key(treatment: str, info: Info) -> str:
    """Note whether records without a key reach the stages."""
    scope_of(info).source.keeps_null_keys = treatment == "keep" or info.data.get("key") == ()
    return treatment


def _read_csv(written: Any, info: Info) -> Any:
    """Return the options as written, or the defaults of `format: csv`."""
    format_ = info.data.get("format")
    if format_ == "csv":
        return {} if written is None else written
    if written is not None and format_ is not None:
        raise mistake(
            f"`format: {format_}` has no options of CSV", "Leave `csv` out, or write `format: csv`."
        )
    return None


if TYPE_CHECKING:
    CsvOptions = Csv
else:
    CsvOptions = read_as(Csv)


class Source(NamedByPath, Model):
    """The records that a pipeline reads, and how they are decoded.

    If `explode` names an array column, the column is one of its elements in `key`, `timestamp`, `deduplicate`
    and the stages' expressions. `connection` is the name of the Kafka cluster; its address is set where
    tidegate runs.
    """

    connection: Annotated[
        Annotated[str, AfterValidator(names.check_kafka_connection)] | None, AfterValidator(check_connection)
    ] = Field(default=None, description="The Kafka cluster, by its name. Null: the one without a name.")
    selection: Annotated[Topics, AfterValidator(check_topics)] = Field(
        alias="topics",
        description="The topics that are read: their names, or `{pattern: …}` for all whose names match.",
    )
    format: SourceFormat = Field(
        description="The format of values. `csv`: one row. `kafka`: one column as Kafka's serializers write "
        "it. `debezium`: the JSON of a change to a row. "
        "`string` and `bytes` have the single column `value`."
    )
    schema_file: Annotated[str | None, AfterValidator(read_schema_file)] = Field(
        alias="schema",
        default=None,
        description="The schema file of Avro (`.avsc`), Protobuf (`.proto`, `.desc`) or JSON (`.json`), by "
        "its "
        "path from here. With a registry it is the reader's schema.",
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
        description="The columns of records, or of Debezium's rows: `name type, …`, in Spark's types. With a "
        "schema file, the default is all of its fields.",
    )
    coerce: Annotated[StrictBool, AfterValidator(_check_coerce)] = Field(
        default=False,
        description="With `json`: whether a value of another type than its column's is converted as ksqlDB "
        "does. `false`: its record goes into quarantine.",
    )
    csv: Annotated[CsvOptions | None, BeforeValidator(_read_csv)] = Field(
        default=None, description="The dialect of the rows of `format: csv`."
    )
    explode: Annotated[str | None, AfterValidator(_is_array)] = Field(
        default=None, description="An array column; each of its elements becomes a record."
    )
    aliases: Annotated[dict[str, ColumnAliases], AfterValidator(_check_aliases)] = Field(
        default={}, description="Former names of columns: records with an older name are read, too."
    )
    key_format: Annotated[SourceKeyFormat, AfterValidator(check_source_key_format)] = Field(
        default="text",
        description="The format of records' own keys: `text`; an object, a record or a message with "
        "columns; or `kafka`, one column as Kafka's serializers write it.",
    )
    key_columns: Annotated[
        tuple[Column, ...],
        BeforeValidator(read_key_columns),
        AfterValidator(note_key_columns),
        WithJsonSchema({"type": ["string", "null"]}),
    ] = Field(
        default=None,  # type: ignore[arg-type]  # resolved while reading
        description="The columns of records' own keys: `name type, …`, in addition to those of the value.",
    )
    key_registry: Annotated[Registry | None, AfterValidator(check_key_registry)] = Field(
        default=None,
        description="The schema registry of keys in Avro or Protobuf. Null: the registry of the values.",
    )
    metadata: Metadata = Field(
        default=None,  # type: ignore[arg-type]  # resolved while reading
        description="What Kafka stores beside the value, as columns: a list, or column: field.",
    )
    headers: Headers = Field(
        default=None,  # type: ignore[arg-type]  # resolved while reading
        description="Headers as columns: column: type, or column: {name: header, type: type}.",
    )
    filter: Annotated[str, AfterValidator(_check_filter)] | None = Field(
        default=None,
        description="A condition on the columns: other records are counted, and are not processed further.",
    )
    key: Annotated[
        tuple[Annotated[str, AfterValidator(_check_key)], ...] | None,
        AfterValidator(_note_key),
    ] = Field(
        default=None,
        description="The columns of the key. Null: the record's own key, as text. An empty list: no record "
        "has a key.",
    )
    null_key: Annotated[Literal["quarantine", "keep"], AfterValidator(_check_null_key)] = Field(
        default="quarantine",
        description="What a record does that has no key, or a null in it: go into quarantine, or pass the "
        "stages and Kafka sinks without one.",
    )
    timestamp: Timestamp = Field(
        default="record",
        description="The time of a record: `record`, Kafka's timestamp, a column with epoch ms or a "
        "timestamp, or a column and how its times are written.",
    )
    deduplicate: Annotated[Deduplicate, AfterValidator(_check_deduplicate)] = Field(
        default="offset",
        description="How a repeated record is recognized: by its offset, its root position, or columns.",
    )
    sequence: Annotated[Sequence | None, AfterValidator(_check_sequence)] = Field(
        default=None, description="The columns that order the changes of a key. Null: the order of the log."
    )
    max_records: Annotated[StrictInt, Field(ge=1, lt=2**63)] | None = Field(
        default=None, description="The maximum number of records of a batch. Null: no bound."
    )
    start: Start = Field(
        default="earliest",
        description="Where the first batch begins: `earliest`, `latest`, a time with a zone, or epoch ms.",
    )

    _matched: tuple[str, ...] | None = PrivateAttr(default=None)
    _condition: Expression | None = PrivateAttr(default=None)
    _nested: dict[str, str] = PrivateAttr(default={})
    _schemas: SourceSchemas = PrivateAttr(default_factory=SourceSchemas)
    _key_schemas: SourceSchemas = PrivateAttr(default_factory=SourceSchemas)

    @model_validator(mode="before")
    @classmethod
    def _open(cls, written: Any, info: Info) -> Any:
        open_source(scope_of(info))
        return written

    @model_validator(mode="after")
    def _keep_schema(self, info: Info) -> Source:
        if not isinstance(self.deduplicate, str) or self.sequence is not None:
            scope_of(info).source.drops = "deduplicate" if self.sequence is None else "sequence"
        if self.filter is not None:
            self._condition = compiled_expression(self.filter, scope_of(info).source.columns)
        self._nested = scope_of(info).source.nested
        self._schemas = SourceSchemas(scope_of(info).source.reader)
        return self

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics. Those of a pattern are known after a batch was planned."""
        if not isinstance(self.selection, TopicPattern):
            return self.selection
        assert self._matched is not None, "a pattern selects topics when a batch is planned"
        return self._matched

    @property
    def topic_labels(self) -> tuple[str, ...]:
        """The names of the topics; before a batch was planned, the pattern in their place."""
        if isinstance(self.selection, TopicPattern) and self._matched is None:
            return (self.selection.pattern,)
        return self.topics

    def reads(self, topic: str) -> bool:
        """Return whether the list of topics, or the pattern, selects a topic."""
        return reads(self.selection, topic)

    def with_topics(self, topics: tuple[str, ...]) -> Source:
        """Return the source with the topics that its pattern has selected; itself if it has none."""
        if not isinstance(self.selection, TopicPattern):
            return self
        source = self.model_copy()
        source._matched = topics
        return source

    @property
    def condition(self) -> Expression | None:
        """The expression of `filter`; None if there is none."""
        return self._condition

    @property
    def schemas(self) -> SourceSchemas:
        """The schemas of values. Those of a registry are included after a batch was planned."""
        return self._schemas

    @property
    def subjects(self) -> tuple[str, ...]:
        """The registry's subjects with the schemas of values; empty without a registry."""
        record = record_name(self.format, self._schemas.reader, self.message)
        return self.registry.subjects_of(self.topics, record) if self.registry is not None else ()

    @property
    def registries(self) -> tuple[Registry, ...]:
        """The registries of values and keys."""
        return tuple(registry for registry in (self.registry, self.key_registry) if registry is not None)

    @property
    def keeps_null_keys(self) -> bool:
        """Whether records without a key, or with a null in it, reach the stages."""
        return self.null_key == "keep" or self.key == ()

    @property
    def row_columns(self) -> tuple[Column, ...]:
        """The columns of values, then those that are read beside them: of records' own keys, and metadata;
        then the fields that are columns of the key.
        """
        metadata = self.record_metadata.schema
        beside = (Column(name=field.name, type=type_of(field.type).text) for field in metadata)
        columns = (*self.columns, *self.key_columns, *beside)
        if not self._nested:
            return columns
        types = self._types(columns)
        fields = {name: type_at(path, types) for name, path in self._nested.items()}
        return (*columns, *(Column(name=name, type=type_.text) for name, type_ in fields.items() if type_))

    def _types(self, columns: Iterable[Column]) -> ColumnTypes:
        """Return the types of columns as keys see them: an exploded array has the type of its elements."""
        types: ColumnTypes = {column.name: parse_type(column.type) for column in columns}
        if self.explode is None:
            return types
        exploded = type_at(self.explode, types)
        assert exploded is not None, "the pipeline file was checked"
        return with_type_at(self.explode, types, exploded.parts[0])

    @property
    def timestamp_path(self) -> str | None:
        """The column, or the path of the field, with the time of records; None: Kafka's timestamp."""
        named = self.timestamp.column if isinstance(self.timestamp, TimestampColumn) else self.timestamp
        return None if named == "record" else named

    @property
    def time_rule(self) -> TimeRule | None:
        """The rule by which the column is read; None: it has epoch ms or instants."""
        return self.timestamp.rule if isinstance(self.timestamp, TimestampColumn) else None

    @property
    def record_metadata(self) -> RecordMetadata:
        """The metadata and the headers that are columns."""
        headers = {
            column: (header.name, arrow_type(parse_type(header.type)))
            for column, header in self.headers.items()
        }
        return RecordMetadata(self.metadata, headers)

    @property
    def key_schemas(self) -> SourceSchemas:
        """The schemas of records' own keys, after a batch was planned."""
        return self._key_schemas

    @property
    def key_subjects(self) -> tuple[str, ...]:
        """The registry's subjects with the schemas of records' own keys; empty without a registry."""
        return self.key_registry.subjects_of(self.topics, None, "key") if self.key_registry else ()

    def with_writers(
        self, writers: tuple[WriterSchema, ...] | None, of_keys: tuple[WriterSchema, ...] | None = None
    ) -> Source:
        """Return the source with a registry's present schemas.

        Args:
            writers: The schemas of values; None if their registry has none, or there is no registry.
            of_keys: The same for records' own keys.
        """
        source = self.model_copy()
        source._schemas = SourceSchemas(self._schemas.reader, writers)
        source._key_schemas = SourceSchemas(None, of_keys)
        return source

    @property
    def cluster(self) -> Connection:
        """The connection of the Kafka cluster."""
        return Connection("kafka", self.connection)
