"""A SELECT of ksqlDB as the source and the stages of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from tidegate.ksql.aggregates import Folded, fold, is_aggregate
from tidegate.ksql.dialect import KsqlWindow, Query
from tidegate.ksql.expressions import Translator, Typed
from tidegate.ksql.functions import call
from tidegate.ksql.relations import Column, Relation, check_readable, source_of
from tidegate.ksql.remarks import Untranslatable
from tidegate.ksql.types import BIGINT, INTEGER, name_of, quoted

_DAY_MS = 86_400_000
_ROWTIME, _PARTITION, _OFFSET = "KSQL_ROWTIME", "KSQL_ROWPARTITION", "KSQL_ROWOFFSET"
_METADATA = {_ROWTIME: "timestamp", _PARTITION: "partition", _OFFSET: "offset"}
_RESERVED = ("KEY", "TIMESTAMP", "WINDOW_START", "WINDOW_END")


@dataclass(frozen=True)
class Item:
    """An item of SELECT: its name, its node, and the expression."""

    name: str
    node: exp.Expression


@dataclass(frozen=True)
class Result:
    """The pipeline of a query, and the columns that it gives.

    Args:
        differs: Why its result may differ from ksqlDB's.
    """

    source: dict[str, Any]
    stages: list[dict[str, Any]]
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    window: str = ""
    differs: tuple[str, ...] = ()


def spelling(relation: Relation) -> list[str]:
    """Return why fields of records may not be read: ksqlDB ignores the case of all names in JSON."""
    nested = [c.name for c in relation.columns if "STRUCT" in {type_.kind for type_ in c.type.inner}]
    if not nested or relation.is_derived or relation.value_format != "JSON":
        return []
    return [f"fields within `{nested[0]}` are read only if they are written as in the statement's upper case"]


def item_of(node: exp.Expression, unnamed: int) -> tuple[Item, int]:
    """Return an item with the name that ksqlDB gives it, and the number of items without one so far."""
    if isinstance(node, exp.Alias):
        return Item(name_of(node.args["alias"]), node.this), unnamed
    if isinstance(node, exp.Column):
        return Item(name_of(node.this), node), unnamed
    if isinstance(node, exp.Dot):
        last = node.expression
        return Item(name_of(last.this if isinstance(last, exp.Column) else last), node), unnamed
    return Item(f"KSQL_COL_{unnamed}", node), unnamed + 1


def normal(node: exp.Expression) -> str:
    """Return a text that is the same for expressions that mean the same."""

    def plain(part: exp.Expression) -> exp.Expression:
        if isinstance(part, exp.Column):
            return exp.column(exp.to_identifier(name_of(part.this), quoted=True))
        if isinstance(part, exp.Anonymous):
            return exp.Anonymous(this=str(part.this).upper(), expressions=part.expressions)
        return part

    return node.unnest().copy().transform(plain).sql()


@dataclass
class QueryPlan:
    """Translates one query that reads one relation. Raises Untranslatable."""

    query: Query
    relation: Relation
    earliest: bool
    differs: list[str] = field(default_factory=list)

    def result(self) -> Result:
        """Return the pipeline's parts."""
        self._check()
        self._items = list(self._read_items())
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
        is_table = self.relation.kind == "TABLE"
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
        """Column of the key -> its name in the pipeline, where its own is taken or reserved."""
        taken = {item.name.lower() for item in self._items}
        plain = {item.name for item in self._items if normal(item.node) == quoted_column(item.name)}
        return {
            column.name: f"KSQL_KEY_{column.name}"
            for column in self.relation.key
            if column.name.upper() in _RESERVED
            or (column.name.lower() in taken and column.name not in plain)
        }

    @property
    def _scope(self) -> dict[str, Typed]:
        names = [self.relation.name, *([self._alias] if self._alias else [])]
        columns = {
            column.name: Typed(quoted(self._internal.get(column.name, column.name)), column.type)
            for column in self.relation.all_columns
        }
        columns |= self._pseudo()
        if self._exploded is not None:
            column = columns[self._exploded]
            columns["KSQL_EXPLODED"] = Typed(column.sql, column.type.parts[0])
            del columns[self._exploded]
        return columns | {f"{name}.{column}": typed for name in names for column, typed in columns.items()}

    def _pseudo(self) -> dict[str, Typed]:
        pseudo = {
            "ROWPARTITION": Typed(quoted(_PARTITION), INTEGER),
            "ROWOFFSET": Typed(quoted(_OFFSET), BIGINT),
        }
        if self.relation.timestamp is None:
            pseudo["ROWTIME"] = Typed(f"unix_millis({quoted(_ROWTIME)})", BIGINT)
        elif self.relation.time_format is None:
            pseudo["ROWTIME"] = Typed(quoted(self.relation.timestamp), BIGINT)
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
            raise Untranslatable("several EXPLODE, or one of an expression, have no equivalent", "Explode a column.")
        name = name_of(argument.this)
        if columns.get(name) != "ARRAY":
            raise Untranslatable(f"`{name}` is no array of the value", "Explode an array.")
        return name

    # items

    def _read_items(self) -> Iterator[Item]:
        unnamed = 0
        for node in self.query.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                for column in self.relation.all_columns:
                    yield Item(column.name, exp.column(exp.to_identifier(column.name, quoted=True)))
                continue
            item, unnamed = item_of(self._without_explode(node), unnamed)
            yield item

    def _without_explode(self, node: exp.Expression) -> exp.Expression:
        """Return an item with a column in place of EXPLODE."""

        def plain(part: exp.Expression) -> exp.Expression:
            if isinstance(part, exp.Anonymous) and str(part.this).upper() == "EXPLODE":
                return exp.column(exp.to_identifier("KSQL_EXPLODED", quoted=True))
            return part

        return node.copy().transform(plain)

    # keys

    def _read_keys(self, grouping: Sequence[exp.Expression] | None) -> list[Item]:
        """Return the items that are the key; the others are the value."""
        if grouping is None:
            nodes = [exp.column(exp.to_identifier(column.name, quoted=True)) for column in self.relation.key]
        else:
            nodes = [
                part
                for node in grouping
                for part in (node.expressions if isinstance(node, exp.Tuple) else [node])
            ]
        if not nodes:
            raise Untranslatable(f"{self.relation.name} has no key", "Give its records a key: PARTITION BY.")
        return [self._key_item(node) for node in nodes]

    def _key_item(self, node: exp.Expression) -> Item:
        if isinstance(node, exp.Null):
            raise Untranslatable("PARTITION BY NULL gives records without a key", "Name a column.")
        items = [item for item in self._items if normal(item.node) == normal(node)]
        if len(items) != 1:
            what = "is not selected" if not items else "is selected twice"
            raise Untranslatable(f"the key `{node.sql()}` {what}, which ksqlDB refuses", "Select it once.")
        return items[0]

    @property
    def _values(self) -> list[Item]:
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

    def _plain(self) -> Result:
        translator = self._translator
        values = {item.name: translator.value(item.node) for item in self._values}
        keys = [translator.value(item.node) for item in self._keys]
        stages = self._prepared(values, keys)
        last = stages[-1]
        last["select"] = dict(last.pop("columns"))
        last["emit"] = {"on": "update"}
        return self._result(stages, values, keys)

    def _prepared(self, values: Mapping[str, Typed], keys: Sequence[Typed]) -> list[dict[str, Any]]:
        """Return a stage whose `columns` are the values; one before it makes a key that is no column."""
        filtered: dict[str, Any] = {}
        if (where := self.query.args.get("where")) is not None:
            filtered = {"filter": self._translator.condition(where)}
        self._source_key = self._plain_key
        if self._source_key is not None:
            return [{"name": "records", **filtered, "columns": {n: v.sql for n, v in values.items()}}]
        # A record may lack a key of its own, which this query does not need; the partition keeps their order.
        self._source_key = [_PARTITION]
        made = {self._made_name(item): key.sql for item, key in zip(self._keys, keys, strict=True)}
        inner = {f"KSQL_VALUE_{number}": value.sql for number, value in enumerate(values.values())}
        first = {"name": "keyed", **filtered, "select": {**made, **inner}, "emit": {"on": "update"}}
        columns = {name: quoted(inner_name) for name, inner_name in zip(values, inner, strict=True)}
        return [first, {"name": "records", "key": list(made), "columns": columns}]

    def _made_name(self, item: Item) -> str:
        reserved = item.name.upper() in _RESERVED or item.name in {value.name for value in self._values}
        return f"KSQL_KEY_{item.name}" if reserved else item.name

    def _grouped(self) -> Result:
        if self.query.args.get("partition"):
            raise Untranslatable("GROUP BY and PARTITION BY do not go together", "Write two queries.")
        windowed: KsqlWindow | None = self.query.args.get("window")
        folding = Folding(self._translator, windowed, self.relation)
        values = {item.name: folding.value(item.node, self._keys) for item in self._values}
        keys = [self._translator.value(item.node) for item in self._keys]
        arguments = {name: Typed(sql, BIGINT) for name, sql in folding.arguments.items()}
        stages = self._prepared(arguments, keys)
        last = stages[-1]
        columns = dict(last.pop("columns"))
        folding_stage = {**last, **folding.stage(columns, values)}
        stages[-1] = folding_stage
        if windowed is not None:
            folding_stage["window"] = _window(windowed)
        final = self.query.args.get("emit") == "FINAL"
        if final and windowed is None:
            raise Untranslatable("EMIT FINAL needs a window", "Write a WINDOW.")
        folding_stage["emit"] = {"on": "window_close", "clock": "stream"} if final else {"on": "update"}
        stages += folding.after(values)
        self.differs += folding.differs
        return self._result(stages, values, keys)

    def _result(
        self, stages: list[dict[str, Any]], values: Mapping[str, Typed], keys: Sequence[Typed]
    ) -> Result:
        assert self._source_key is not None
        if not values:
            raise Untranslatable("its records have no value, only a key", "Select a column, or AS_VALUE.")
        if any(typed.type.kind == "NULL" for typed in (*values.values(), *keys)):
            raise Untranslatable("a column is NULL without a type", "Cast it.")
        source = source_of(self.relation, self._source_key, self._internal, self.earliest)
        if self._exploded is not None:
            source["explode"] = self._exploded
        text = str(stages) + str(self._source_key)
        metadata = {name: what for name, what in _METADATA.items() if name in text}
        if metadata:
            source["metadata"] = metadata
        key = tuple(Column(item.name, typed.type) for item, typed in zip(self._keys, keys, strict=True))
        columns = tuple(Column(name, typed.type) for name, typed in values.items())
        window: KsqlWindow | None = self.query.args.get("window")
        kind = "" if window is None else str(window.args["kind"])
        return Result(source, stages, key, columns, kind, tuple(dict.fromkeys(self.differs)))


def quoted_column(name: str) -> str:
    """Return the normal text of a column."""
    return normal(exp.column(exp.to_identifier(name, quoted=True)))


@dataclass
class Folding:
    """The aggregates of a query, and the expressions over them."""

    translator: Translator
    window: KsqlWindow | None
    relation: Relation
    arguments: dict[str, str] = field(default_factory=dict)
    folded: dict[str, Folded] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    computes: bool = False

    def value(self, node: exp.Expression, keys: Sequence[Item]) -> Typed:
        """Return an item over aggregates and keys. An aggregate stands in it as `{name}`."""
        columns: dict[str, Typed] = {}
        alone = node.unnest()
        is_column = isinstance(alone, exp.Column) or normal(alone) in {normal(item.node) for item in keys}
        is_call = isinstance(alone, exp.Anonymous) and is_aggregate(str(alone.this).upper())
        self.computes = self.computes or not (is_column or is_call)

        def plain(part: exp.Expression) -> exp.Expression:
            if isinstance(part, exp.Column) and name_of(part.this) in ("WINDOWSTART", "WINDOWEND"):
                return self._placed(columns, self._bound(name_of(part.this)))
            if isinstance(part, exp.Anonymous) and is_aggregate(str(part.this).upper()):
                return self._placed(columns, self._fold(part))
            return part

        changed = node.copy().transform(plain)
        groups = {normal(item.node): item for item in keys}

        def grouped(part: exp.Expression) -> exp.Expression:
            if isinstance(part, exp.Expression) and not isinstance(part, exp.Identifier):
                item = groups.get(normal(part))
                if item is not None:
                    return self._placed(columns, self._key(item))
            return part

        changed = changed.transform(grouped)
        return replace(self.translator, columns=columns).value(changed)

    def _placed(self, columns: dict[str, Typed], folded: Folded) -> exp.Expression:
        name = next((n for n, other in self.folded.items() if other == folded), f"KSQL_AGG_{len(self.folded)}")
        self.folded[name] = folded
        columns[name] = replace(folded.value, sql=folded.value.sql.replace("{}", f"{{{name}}}"))
        if folded.differs:
            self.differs.append(folded.differs)
        return exp.column(exp.to_identifier(name, quoted=True))

    def _fold(self, node: exp.Anonymous) -> Folded:
        star = any(isinstance(part, exp.Star) for part in node.expressions)
        arguments = [] if star else [self.translator.value(part) for part in node.expressions]
        arguments[:1] = [replace(argument, sql=self._argument(argument)) for argument in arguments[:1]]
        return fold(str(node.this).upper(), arguments, star, alone=self.window is None)

    def _key(self, item: Item) -> Folded:
        typed = self.translator.value(item.node)
        return Folded(f"last({self._argument(typed)})", Typed("{}", typed.type, is_certain=True), False, "")

    def _argument(self, argument: Typed) -> str:
        """Return the column with the argument of an aggregate, which a stage before may have made."""
        if argument.literal is not None:
            return argument.sql
        name = next((n for n, sql in self.arguments.items() if sql == argument.sql), None)
        name = name or f"KSQL_ARG_{len(self.arguments)}"
        self.arguments[name] = argument.sql
        return f"<{name}>"

    def _bound(self, name: str) -> Folded:
        """Return the start or the end of the window, of which every record of it tells."""
        if self.window is None:
            raise Untranslatable(f"{name} needs a window", "Write a WINDOW.")
        time = self.translator.value(exp.column(exp.to_identifier("ROWTIME", quoted=True)))
        kind, size = self.window.args["kind"], self.window.args["size"]
        if kind == "HOPPING":
            raise Untranslatable(f"{name} of hopping windows has no equivalent", "Take it from the window.")
        if kind == "SESSION":
            which = "min" if name == "WINDOWSTART" else "max"
            return Folded(f"{which}({self._argument(time)})", Typed("{}", BIGINT, is_certain=True), False, "")
        start = f"({time.sql} - pmod({time.sql}, {size}L))"
        end = f"({start} + {size}L)"
        of = Typed(start if name == "WINDOWSTART" else end, BIGINT)
        return Folded(f"min({self._argument(of)})", Typed("{}", BIGINT, is_certain=True), False, "")

    def stage(self, columns: Mapping[str, str], values: Mapping[str, Typed]) -> dict[str, Any]:
        """Return `reduce` of the stage. `columns`: argument -> its expression there."""
        aggregates = {name: _filled(folded.sql, columns) for name, folded in self.folded.items()}
        if self.follows:
            return {"reduce": aggregates}
        return {"reduce": {name: _named(value.sql, aggregates) for name, value in values.items()}}

    @property
    def follows(self) -> bool:
        """Whether a stage that follows computes with the aggregates: all of Spark's functions are there."""
        wraps = any(folded.wraps for folded in self.folded.values())
        return self.window is None and (self.computes or wraps)

    def after(self, values: Mapping[str, Typed]) -> list[dict[str, Any]]:
        """Return the stage that follows, if there is one."""
        if not self.follows:
            return []
        names = {name: quoted(name) for name in self.folded}
        select = {name: _named(value.sql, names) for name, value in values.items()}
        return [{"name": "results", "select": select, "emit": {"on": "update"}}]


def _filled(sql: str, columns: Mapping[str, str]) -> str:
    for name, expression in columns.items():
        sql = sql.replace(f"<{name}>", expression)
    return sql


def _named(sql: str, expressions: Mapping[str, str]) -> str:
    for name, expression in expressions.items():
        sql = sql.replace(f"{{{name}}}", expression)
    return sql


def _window(window: KsqlWindow) -> dict[str, str]:
    kind, size = window.args["kind"], window.args["size"]
    # without GRACE PERIOD, ksqlDB takes records for a day from the window's start on
    grace = window.args.get("grace")
    grace = max(_DAY_MS - size, 0) if grace is None else grace
    parts = {kind.lower(): f"{size}ms"}
    if kind == "HOPPING":
        parts["every"] = f"{window.args.get('advance') or size}ms"
    return {**parts, "grace": f"{grace}ms"} if grace else parts


