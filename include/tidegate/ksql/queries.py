"""A SELECT of ksqlDB as the source and the stages of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from tidegate.ksql.dialect import KsqlWindow, Query
from tidegate.ksql.expressions import Translator
from tidegate.ksql.functions import call
from tidegate.ksql.grouping import AggregateQuery
from tidegate.ksql.relations import (
    EXPLODED,
    KsqlColumn,
    Relation,
    SelectItem,
    check_names,
    check_readable,
    item_of,
    normal,
    quoted_column,
    source_of,
    spelling,
)
from tidegate.ksql.translated import DAY_MS, Translated, with_type
from tidegate.ksql.types import BIGINT, INTEGER, Untranslatable, name_of
from tidegate.model.names import quote

_ROWTIME, _PARTITION, _OFFSET = "KSQL_ROWTIME", "KSQL_ROWPARTITION", "KSQL_ROWOFFSET"
_OWN_KEY = "KSQL_OWN_KEY"
_METADATA = {_ROWTIME: "timestamp", _PARTITION: "partition", _OFFSET: "offset", _OWN_KEY: "key"}
_COMPUTED_KEY = (
    "a record without a value, or for which the expression of PARTITION BY is null, goes on in ksqlDB, and "
    "not in tidegate"
)
_DROPPED = (
    "ksqlDB does not send a window that is older than its retention when the next record comes, and tidegate "
    "sends each window"
)
_RESERVED = ("KEY", "TIMESTAMP", "WINDOW_START", "WINDOW_END")


@dataclass(frozen=True)
class QueryResult:
    """The pipeline of a query, and the columns that it gives.

    Args:
        differs: Why its result may differ from ksqlDB's.
    """

    source: dict[str, Any]
    stages: list[dict[str, Any]]
    key: tuple[KsqlColumn, ...]
    columns: tuple[KsqlColumn, ...]
    window: str = ""
    differs: tuple[str, ...] = ()


@dataclass
class QueryPlan:
    """Translates one query that reads one relation. Raises Untranslatable."""

    query: Query
    relation: Relation
    earliest: bool
    differs: list[str] = field(default_factory=list)

    def result(self) -> QueryResult:
        """Return the pipeline's parts."""
        self._check()
        self._items = list(self._read_items())
        check_names(self._items)
        grouping = self.query.args.get("group") or self.query.args.get("partition")
        self._keys = self._read_keys(grouping)
        if self.query.args.get("group"):
            return self._grouped()
        return self._plain()

    def _check(self) -> None:
        check_readable(self.relation)
        self.differs += spelling(self.relation)
        if self.query.args.get("limit") is not None:
            raise Untranslatable("LIMIT ends a query", "Leave it out.")
        if self.query.args.get("having") is not None:
            raise Untranslatable(
                "HAVING deletes a row that no longer passes, and `where` leaves it as it was",
                "Select the condition as a column, and let readers test it.",
            )
        if self.query.args.get("window") is not None and not self.query.args.get("group"):
            raise Untranslatable("WINDOW needs GROUP BY, without which ksqlDB refuses it", "Write GROUP BY.")
        is_table = self.relation.kind == "TABLE"
        if is_table and self._exploded is not None:
            raise Untranslatable("EXPLODE of a table is refused by ksqlDB", "Declare it as a stream.")
        if is_table and self.query.args.get("where") is not None:
            raise Untranslatable(
                "WHERE on a table deletes a row that no longer passes, and `filter` leaves it as it was",
                "Select the condition as a column, and let readers test it.",
            )
        if is_table and self.query.args.get("group"):
            raise Untranslatable(
                "a group of a table that loses its last row stays in ksqlDB, and is deleted by `retract`",
                "Write a stage with `retract: true`, if a deletion is what readers need.",
            )

    # names

    @property
    def _internal(self) -> dict[str, str]:
        """KsqlColumn of the key -> its name in the pipeline, where its own is taken or reserved."""
        taken = {item.name.lower() for item in self._items}
        plain = {item.name for item in self._items if normal(item.node) == quoted_column(item.name)}
        return {
            column.name: f"KSQL_KEY_{column.name}"
            for column in self.relation.key
            if column.name.upper() in _RESERVED or (column.name.lower() in taken and column.name not in plain)
        }

    @property
    def _scope(self) -> dict[str, Translated]:
        names = [self.relation.name, *([self._alias] if self._alias else [])]
        columns = {
            column.name: Translated(quote(self._internal.get(column.name, column.name)), column.type)
            for column in self.relation.all_columns
        }
        columns |= self._pseudo()
        if self._exploded is not None:
            column = columns[self._exploded]
            columns[EXPLODED] = Translated(column.sql, column.type.parts[0])
            del columns[self._exploded]
        return columns | {f"{name}.{column}": typed for name in names for column, typed in columns.items()}

    def _pseudo(self) -> dict[str, Translated]:
        pseudo = {
            "ROWPARTITION": Translated(quote(_PARTITION), INTEGER),
            "ROWOFFSET": Translated(quote(_OFFSET), BIGINT),
        }
        if self.relation.timestamp is None:
            pseudo["ROWTIME"] = Translated(f"unix_millis({quote(_ROWTIME)})", BIGINT)
        elif self.relation.time_format is None:
            pseudo["ROWTIME"] = Translated(quote(self.relation.timestamp), BIGINT)
        return pseudo

    @property
    def _alias(self) -> str | None:
        alias = self.query.this.args.get("alias")
        return None if alias is None else name_of(alias)

    @property
    def _translator(self) -> Translator:
        return Translator(self._scope, call)

    @property
    def _exploded(self) -> str | None:
        """The array whose items become records; None if there is none."""
        calls = [
            node
            for item in self.query.expressions
            for node in item.find_all(exp.Anonymous)
            if str(node.this).upper() in ("EXPLODE", "CUBE_EXPLODE")
        ]
        if not calls:
            return None
        (argument,) = calls[0].expressions or (None,)
        columns = {column.name: column.type.kind for column in self.relation.columns}
        if len(calls) > 1 or not isinstance(argument, exp.Column) or str(calls[0].this).upper() != "EXPLODE":
            raise Untranslatable(
                "several EXPLODE, or one of an expression, have no equivalent", "Explode a column."
            )
        name = name_of(argument.this)
        if columns.get(name) != "ARRAY":
            raise Untranslatable(f"`{name}` is no array of the value", "Explode an array.")
        return name

    # items

    def _read_items(self) -> Iterator[SelectItem]:
        unnamed = 0
        for node in self.query.expressions:
            if isinstance(node, exp.Star) or (
                isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
            ):
                for column in self._all_columns:
                    yield SelectItem(column.name, exp.column(exp.to_identifier(column.name, quoted=True)))
                continue
            item, unnamed = item_of(self._without_explode(node), unnamed, self._columns)
            yield item

    @property
    def _all_columns(self) -> Sequence[KsqlColumn]:
        """The columns of SELECT *: PARTITION BY puts those of the old key behind the others."""
        if self.query.args.get("partition"):
            return (*self.relation.columns, *self.relation.key)
        return self.relation.all_columns

    def _without_explode(self, node: exp.Expr) -> exp.Expr:
        """Return an item with a column in place of EXPLODE."""

        def plain(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Anonymous) and str(part.this).upper() == "EXPLODE":
                return exp.column(exp.to_identifier(EXPLODED, quoted=True))
            return part

        return node.copy().transform(plain)

    # keys

    def _read_keys(self, grouping: Sequence[exp.Expr] | None) -> list[SelectItem]:
        """Return the items that are the key; the others are the value."""
        nodes: list[exp.Expr]
        if grouping is None:
            nodes = [exp.column(exp.to_identifier(column.name, quoted=True)) for column in self.relation.key]
        else:
            nodes = [
                part
                for node in grouping
                for part in (node.expressions if isinstance(node, exp.Tuple) else [node])
            ]
        if any(isinstance(node, exp.Null) for node in nodes):
            if len(nodes) > 1:
                raise Untranslatable("a part of the key is NULL, which ksqlDB refuses", "Name columns.")
            return []  # PARTITION BY NULL: records without a key
        return [self._key_item(node) for node in nodes]

    def _key_item(self, node: exp.Expr) -> SelectItem:
        items = [item for item in self._items if normal(item.node) == normal(node)]
        if len(items) != 1:
            what = "is not selected" if not items else "is selected twice"
            raise Untranslatable(f"the key `{node.sql()}` {what}, which ksqlDB refuses", "Select it once.")
        return items[0]

    @property
    def _values(self) -> list[SelectItem]:
        return [item for item in self._items if item not in self._keys]

    @property
    def _plain_key(self) -> list[str] | None:
        """The columns of the source that are the key; None if the key has to be computed or renamed."""
        names = []
        for item in self._keys:
            node = item.node.unnest()
            if not isinstance(node, exp.Column) or name_of(node.this) not in self._columns:
                return None
            name = name_of(node.this)
            if name == self._exploded or (len(self._keys) > 1 and name != item.name):
                return None
            names.append(self._internal.get(name, name))
        return None if any(name.upper() in _RESERVED for name in names) else names

    @property
    def _columns(self) -> set[str]:
        return {column.name for column in self.relation.all_columns}

    # stages

    def _plain(self) -> QueryResult:
        translator = self._translator
        values = {item.name: translator.value(item.node) for item in self._values}
        keys = [translator.value(item.node) for item in self._keys]
        stages = self._prepared(values, keys)
        last = stages[-1]
        last["select"] = dict(last.pop("columns"))
        last["emit"] = {"on": "update", "deletions": "none" if self._drops_null_values else "all"}
        if self._source_key == [_PARTITION]:
            self.differs.append(_COMPUTED_KEY)
        return self._result(stages, values, keys)

    @property
    def _drops_null_values(self) -> bool:
        """Whether ksqlDB sends no record without a value on: no condition is true of one, and it has no
        items to explode.
        """
        return self.query.args.get("where") is not None or self._exploded is not None

    @property
    def _null_keys(self) -> dict[str, Any]:
        """Options of the source for records without a key: ksqlDB sends them on, but those of a table."""
        if self.query.args.get("group") or self._source_key == [_PARTITION]:
            return {}
        if self.relation.kind == "STREAM":
            return {"null_key": "keep"} if self._source_key else {}
        if len(self.relation.key) == 1:
            return {}
        # a part of the key may be null, but not all of it
        return {"null_key": "keep", "filter": f"{quote(_OWN_KEY)} is not null"}

    def _prepared(self, values: Mapping[str, Translated], keys: Sequence[Translated]) -> list[dict[str, Any]]:
        """Return a stage whose `columns` are the values. One before it makes a key that is no column, or
        filters what a window gets: in ksqlDB a record that is filtered out makes no other one late.
        """
        filtered: dict[str, Any] = {}
        if (where := self.query.args.get("where")) is not None:
            filtered = {"filter": self._translator.condition(where)}
        self._source_key = self._plain_key
        is_apart = bool(filtered) and self.query.args.get("window") is not None
        if self._source_key is not None and not is_apart:
            return [{"name": "records", **filtered, "columns": {n: v.sql for n, v in values.items()}}]
        # A record may lack a key of its own, which this query does not need; the partition keeps their order.
        self._source_key = [_PARTITION]
        made = {
            self._made_name(item): with_type(key.sql, key.type)
            for item, key in zip(self._keys, keys, strict=True)
        }
        inner = {f"KSQL_VALUE_{number}": value.sql for number, value in enumerate(values.values())}
        first = {"name": "keyed", **filtered, "select": {**made, **inner}, "emit": {"on": "update"}}
        columns = {name: quote(inner_name) for name, inner_name in zip(values, inner, strict=True)}
        return [first, {"name": "records", "key": list(made), "columns": columns}]

    def _made_name(self, item: SelectItem) -> str:
        reserved = item.name.upper() in _RESERVED or item.name in {value.name for value in self._values}
        return f"KSQL_KEY_{item.name}" if reserved else item.name

    def _grouped(self) -> QueryResult:
        if self.query.args.get("partition"):
            raise Untranslatable("GROUP BY and PARTITION BY do not go together", "Write two queries.")
        windowed: KsqlWindow | None = self.query.args.get("window")
        folding = AggregateQuery(self._translator, windowed, self.relation)
        values = {item.name: folding.value(item.node, self._keys) for item in self._values}
        keys = [self._translator.value(item.node) for item in self._keys]
        arguments = {name: Translated(sql, BIGINT) for name, sql in folding.arguments.items()}
        stages = self._prepared(arguments, keys)
        last = stages[-1]
        columns = dict(last.pop("columns"))
        folding_stage = {**last, **folding.stage(columns, values)}
        stages[-1] = folding_stage
        final = self.query.args.get("emit") == "FINAL"
        if windowed is not None:
            folding_stage["window"] = _window(windowed, final)
        elif final:
            raise Untranslatable("EMIT FINAL needs a window", "Write a WINDOW.")
        if final:
            self.differs.append(_DROPPED)
        folding_stage["emit"] = {"on": "window_close", "clock": "stream"} if final else {"on": "update"}
        stages += folding.after(values)
        self.differs += folding.differs
        return self._result(stages, values, keys)

    def _result(
        self, stages: list[dict[str, Any]], values: Mapping[str, Translated], keys: Sequence[Translated]
    ) -> QueryResult:
        assert self._source_key is not None
        if not values:
            raise Untranslatable("its records have no value, only a key", "Select a column, or AS_VALUE.")
        if any(typed.type.kind == "NULL" for typed in (*values.values(), *keys)):
            raise Untranslatable("a column is NULL without a type", "Cast it.")
        source = source_of(self.relation, self._source_key, self._internal, self.earliest)
        if self._exploded is not None:
            source["explode"] = self._exploded
        text = str(stages) + str(self._source_key)
        source |= self._null_keys
        text += str(source.get("filter"))
        metadata = {name: what for name, what in _METADATA.items() if name in text}
        if metadata:
            source["metadata"] = metadata
        key = tuple(KsqlColumn(item.name, typed.type) for item, typed in zip(self._keys, keys, strict=True))
        columns = tuple(KsqlColumn(name, typed.type) for name, typed in values.items())
        window: KsqlWindow | None = self.query.args.get("window")
        kind = "" if window is None else str(window.args["kind"])
        return QueryResult(source, stages, key, columns, kind, tuple(dict.fromkeys(self.differs)))


def _window(window: KsqlWindow, final: bool) -> dict[str, str]:
    kind, size = window.args["kind"], window.args["size"]
    grace = window.args.get("grace")
    if grace is None:
        # ksqlDB takes records for a day from the window's start on, but with EMIT FINAL only until its end
        grace = 0 if final else max(DAY_MS - size, 0)
    parts = {kind.lower(): f"{size}ms"}
    if kind == "HOPPING":
        parts["every"] = f"{window.args.get('advance') or size}ms"
    return {**parts, "grace": f"{grace}ms"} if grace else parts
