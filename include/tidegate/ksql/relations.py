"""Streams and tables: columns, keys and formats, and how a pipeline file reads and writes their topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from tidegate.ksql.dialect import Alter, CreateSource
from tidegate.ksql.types import KsqlType, Untranslatable, name_of, type_of
from tidegate.model.names import quote

_VALUES = {"JSON": "json", "DELIMITED": "csv", "KAFKA": "kafka"}
"""ksqlDB's format -> that of a pipeline file."""
_WITHOUT_EFFECT = {"KAFKA_TOPIC", "VALUE_FORMAT", "KEY_FORMAT", "FORMAT", "PARTITIONS", "REPLICAS"} | {
    *("TIMESTAMP", "TIMESTAMP_FORMAT", "WRAP_SINGLE_VALUE", "VALUE_DELIMITER", "RETENTION_MS")
}
_SINGLE_KEYS = ("INTEGER", "BIGINT", "STRING")
_REGISTERED = ("AVRO", "PROTOBUF", "JSON_SR")
_FORMAT_FIX = (
    "Write the topic in JSON, DELIMITED or KAFKA, or write the pipeline with `format: avro` yourself."
)


@dataclass(frozen=True)
class KsqlColumn:
    """A column of a stream or a table.

    Args:
        names: Names that the field may have in JSON: ksqlDB ignores the case of fields.
    """

    name: str
    type: KsqlType
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class WithOptions:
    """The options of a WITH clause, in upper case, with the line of none of them."""

    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, options: Iterable[exp.Expr] | None) -> WithOptions:
        """Read the options. Raises Untranslatable for one that would change a result."""
        values = {str(option.this): str(option.expression.this) for option in options or ()}
        unknown = sorted(values.keys() - _WITHOUT_EFFECT)
        if unknown:
            raise Untranslatable(f"the option {unknown[0]} is not translated", "Leave it out.")
        return cls(values)

    def get(self, *names: str) -> str | None:
        """Return the first option of these names that is written."""
        return next((self.values[name] for name in names if name in self.values), None)


@dataclass(frozen=True)
class Relation:
    """A stream or a table.

    Args:
        key: The key's columns; empty: its records have no key.
        timestamp: The column with the time of records; None: Kafka's timestamp.
        window: The window of its key; empty: it has none.
        is_derived: Whether a statement of the file writes its topic: then all of it is read.
        delimiter: Of DELIMITED values.
        is_declared: Whether a statement declares it over a topic, which programs other than ksqlDB may write.
    """

    name: str
    kind: str
    topic: str
    key: tuple[KsqlColumn, ...]
    columns: tuple[KsqlColumn, ...]
    key_format: str
    value_format: str
    timestamp: str | None = None
    time_format: str | None = None
    window: str = ""
    is_derived: bool = False
    delimiter: str | None = None
    is_declared: bool = False

    @property
    def all_columns(self) -> tuple[KsqlColumn, ...]:
        """The key's columns and the value's, in the order of SELECT *."""
        return (*self.key, *self.columns)


def declared(tree: CreateSource) -> Relation:
    """Return the relation that CREATE STREAM or TABLE declares. Raises Untranslatable."""
    options = WithOptions.read(tree.args.get("options"))
    columns = [
        (part.args.get("role"), _column(part, options.get("VALUE_FORMAT", "FORMAT")))
        for part in tree.args.get("columns") or ()
    ]
    if not columns:
        raise Untranslatable(
            "its columns are those of a schema in a registry", "Write the columns into the statement."
        )
    if any(role in ("HEADERS", "HEADER") for role, _ in columns):
        raise Untranslatable("it has columns of headers", "Write `source.headers` into the pipeline.")
    topic = options.get("KAFKA_TOPIC") or name_of(tree.this)
    relation = Relation(
        name_of(tree.this),
        tree.args["kind"],
        topic,
        tuple(column for role, column in columns if role),
        tuple(column for role, column in columns if not role),
        (options.get("KEY_FORMAT", "FORMAT") or "KAFKA").upper(),
        (options.get("VALUE_FORMAT", "FORMAT") or "").upper(),
        delimiter=options.get("VALUE_DELIMITER"),
        is_declared=True,
    )
    if relation.columns:
        _check_wrapping(relation, options)
    return with_time(relation, options)


def altered(relation: Relation, tree: Alter) -> Relation:
    """Return the relation with the columns that ALTER adds. Raises Untranslatable."""
    if relation.is_derived:
        raise Untranslatable(f"{relation.name} has the columns of its query", "Alter the query.")
    added = tuple(_column(part, relation.value_format) for part in tree.args["columns"])
    return replace(relation, columns=(*relation.columns, *added))


def with_time(relation: Relation, options: WithOptions) -> Relation:
    """Return the relation with the column of its time, if the options name one.

    Raises Untranslatable if it has no such column, or one without a time.
    """
    named = options.get("TIMESTAMP")
    if named is None:
        return relation
    names = {column.name.upper(): column for column in relation.all_columns}
    column = names.get(named.strip("`").upper())
    if column is None or column.type.kind not in ("BIGINT", "TIMESTAMP", "STRING"):
        raise Untranslatable(f"there is no time in the column {named}", "Name a BIGINT with milliseconds.")
    return replace(relation, timestamp=column.name, time_format=options.get("TIMESTAMP_FORMAT"))


def _column(part: exp.Expr, value_format: str | None) -> KsqlColumn:
    name, type_ = name_of(part.this), type_of(part.args["kind"])
    written = str(part.this.this)
    spellings = (written, written.lower())
    # a quoted name with small letters is the only one of its field
    is_free = (value_format or "").upper() == "JSON" and not part.args.get("role") and name == name.upper()
    names = tuple(dict.fromkeys(spelling for spelling in spellings if spelling != name)) if is_free else ()
    return KsqlColumn(name, type_, names)


def check_readable(relation: Relation, options: WithOptions | None = None) -> None:
    """Raise Untranslatable if a pipeline cannot read, or write, the topic of a relation exactly."""
    if relation.window:
        raise Untranslatable(
            f"{relation.name} has the windows of another query in its key", "Join the queries."
        )
    _check_formats(relation)
    if not relation.columns:
        raise Untranslatable(f"{relation.name} has no column in its value", "Add a column.")
    if options is not None:
        _check_wrapping(relation, options)
    inner = {type_.kind for column in relation.columns for type_ in column.type.inner}
    if relation.value_format == "KAFKA" and (
        len(relation.columns) != 1 or relation.columns[0].type.kind not in (*_SINGLE_KEYS, "DOUBLE")
    ):
        raise Untranslatable("a value of KAFKA is a single column", "Use another format.")
    if relation.value_format == "DELIMITED" and inner & {"ARRAY", "MAP", "STRUCT", "BYTES"}:
        raise Untranslatable("a value of DELIMITED has single values", "Use JSON.")


def _check_wrapping(relation: Relation, options: WithOptions) -> None:
    wraps = (options.get("WRAP_SINGLE_VALUE") or "true").lower() == "true"
    if not wraps and len(relation.columns) == 1:
        raise Untranslatable("WRAP_SINGLE_VALUE changes the form of values", "Leave it out.")


def _check_formats(relation: Relation) -> None:
    if relation.value_format not in _VALUES:
        name = relation.value_format or "no format"
        raise Untranslatable(f"values in {name} are not translated", _FORMAT_FIX)
    if not relation.key and relation.key_format in _REGISTERED:
        raise Untranslatable("its key has the columns of a schema in a registry", _FORMAT_FIX)
    if not relation.key or (relation.key_format == "JSON" and len(relation.key) > 1):
        return
    if relation.key_format != "KAFKA":
        raise Untranslatable(f"keys in {relation.key_format} are not translated", "Use KEY_FORMAT='KAFKA'.")
    if len(relation.key) > 1 or relation.key[0].type.kind not in _SINGLE_KEYS:
        kinds = ", ".join(column.type.kind for column in relation.key)
        raise Untranslatable(f"a key of ({kinds}) has no equivalent", "Use INTEGER, BIGINT or STRING.")


def source_of(
    relation: Relation, key: Sequence[str], internal: Mapping[str, str], earliest: bool
) -> dict[str, Any]:
    """Return the `source` of a pipeline that reads the relation.

    Args:
        key: The columns by which the pipeline keeps state.
        internal: KsqlColumn of the relation's key -> its name in the pipeline.
    """
    source: dict[str, Any] = {
        "topics": [relation.topic],
        "format": _VALUES[relation.value_format],
        "columns": _ddl(relation.columns),
    }
    if relation.value_format == "JSON" and relation.is_declared:
        source["coerce"] = True
    if relation.delimiter is not None:
        source["csv"] = {"delimiter": _delimiter(relation.delimiter)}
    aliases = {column.name: list(column.names) for column in relation.columns if column.names}
    if aliases:
        source["aliases"] = aliases
    if relation.key:
        source["key_format"] = "kafka" if relation.key_format == "KAFKA" else "json"
        keys = [KsqlColumn(internal.get(column.name, column.name), column.type) for column in relation.key]
        source["key_columns"] = _ddl(keys)
    source["key"] = list(key)
    if relation.timestamp is not None:
        source["timestamp"] = _time(relation, internal)
    if not (earliest or relation.is_derived):
        source["start"] = "latest"
    return source


def _ddl(columns: Iterable[KsqlColumn]) -> str:
    return ", ".join(f"{quote(column.name)} {column.type.ddl}" for column in columns)


def _delimiter(written: str) -> str:
    return {"TAB": "\t", "SPACE": " "}.get(written.upper(), written)


def _time(relation: Relation, internal: Mapping[str, str]) -> Any:
    column = next(column for column in relation.all_columns if column.name == relation.timestamp)
    name = internal.get(column.name, column.name)
    if relation.time_format is not None:
        return {"column": name, "format": relation.time_format}
    if column.type.kind == "STRING":
        raise Untranslatable("a time in a text needs its format", "Write TIMESTAMP_FORMAT.")
    return name


def sink_of(relation: Relation) -> dict[str, Any]:
    """Return the `sinks` entry of a pipeline that writes the relation."""
    check_readable(relation)
    if relation.delimiter not in (None, ","):
        raise Untranslatable("sinks write DELIMITED with commas", "Leave VALUE_DELIMITER out.")
    sink = {"kind": "kafka", "topic": relation.topic, "format": _VALUES[relation.value_format]}
    if not relation.key:
        return sink
    return {**sink, "key_format": "kafka" if relation.key_format == "KAFKA" else "json"}


@dataclass(frozen=True)
class SelectItem:
    """An item of SELECT: its name, its node, and the expression."""

    name: str
    node: exp.Expr


def spelling(relation: Relation) -> list[str]:
    """Return why fields of records may not be read: ksqlDB ignores the case of all names in JSON."""
    nested = [c.name for c in relation.columns if "STRUCT" in {type_.kind for type_ in c.type.inner}]
    if not nested or not relation.is_declared or relation.value_format != "JSON":
        return []
    return [f"fields within `{nested[0]}` are read only if they are written as in the statement's upper case"]


_PSEUDO = ("ROWTIME", "ROWPARTITION", "ROWOFFSET", "WINDOWSTART", "WINDOWEND")
EXPLODED = "KSQL_EXPLODED"
"""The column that has an item of the exploded array."""


def item_of(node: exp.Expr, unnamed: int, taken: Collection[str] = ()) -> tuple[SelectItem, int]:
    """Return an item with the name that ksqlDB gives it, and the number of items without one so far.

    Args:
        taken: Names that ksqlDB does not give, since columns have them.
    """
    if isinstance(node, exp.Alias):
        return SelectItem(name_of(node.args["alias"]), node.this), unnamed
    if isinstance(node, exp.Column) and name_of(node.this) != EXPLODED:
        return SelectItem(name_of(node.this), node), unnamed
    if isinstance(node, exp.Dot):
        last = node.expression
        return SelectItem(name_of(last.this if isinstance(last, exp.Column) else last), node), unnamed
    while f"KSQL_COL_{unnamed}" in taken:
        unnamed += 1
    return SelectItem(f"KSQL_COL_{unnamed}", node), unnamed + 1


def check_names(items: Sequence[SelectItem]) -> None:
    """Raise Untranslatable for names that ksqlDB refuses: its own columns', and one that comes twice."""
    names = [item.name for item in items]
    for name in names:
        if name in _PSEUDO:
            raise Untranslatable(
                f"{name} is a name of ksqlDB itself, which refuses it", "Give it another name, with AS."
            )
        if names.count(name) > 1:
            raise Untranslatable(f"two columns are `{name}`, which ksqlDB refuses", "Rename one of them.")


def normal(node: exp.Expr) -> str:
    """Return a text that is the same for expressions that mean the same."""

    def plain(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column):
            return exp.column(exp.to_identifier(name_of(part.this), quoted=True))
        if isinstance(part, exp.Anonymous):
            return exp.Anonymous(this=str(part.this).upper(), expressions=part.expressions)
        return part

    return node.unnest().copy().transform(plain).sql()


def quoted_column(name: str) -> str:
    """Return the normal text of a column."""
    return normal(exp.column(exp.to_identifier(name, quoted=True)))
