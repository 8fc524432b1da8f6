"""A join of two streams of ksqlDB as two sources and a `join` stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from tidegate.ksql.dialect import KsqlJoin, Query
from tidegate.ksql.expressions import Translator
from tidegate.ksql.functions import call
from tidegate.ksql.queries import QueryResult
from tidegate.ksql.relations import (
    KsqlColumn,
    Relation,
    SelectItem,
    check_names,
    check_readable,
    item_of,
    source_of,
    spelling,
)
from tidegate.ksql.translated import DAY_MS, Translated
from tidegate.ksql.types import Untranslatable, name_of
from tidegate.model.names import quote

_KEY = "KSQL_JOIN"
_LATER = (
    "a record without a match goes out when the time of its own topic has passed, in ksqlDB also when that "
    "of the other topic has"
)


@dataclass(frozen=True)
class JoinSide:
    """A side of a join.

    Args:
        name: `left` or `right`, the side's column in the pairs.
        alias: The name by which the query calls it.
        column: The column that is compared.
    """

    name: str
    alias: str
    relation: Relation
    column: KsqlColumn

    @property
    def columns(self) -> Mapping[str, Translated]:
        """KsqlColumn -> what stands for it in the stage behind the join."""
        return {
            column.name: Translated(
                f"{quote(self.name)}.{quote(_KEY if column == self.column else column.name)}", column.type
            )
            for column in self.relation.all_columns
        }

    def source(self, earliest: bool) -> dict[str, Any]:
        """Return the source that reads the side; the compared column has the same name on both sides."""
        if self.column in self.relation.key:
            return source_of(self.relation, [_KEY], {self.column.name: _KEY}, earliest)
        # In JSON a column can have another name than its field; in DELIMITED the place counts.
        names = (self.column.name, *self.column.names) if self.relation.value_format == "JSON" else ()
        renamed = replace(self.column, name=_KEY, names=names)
        columns = tuple(renamed if column == self.column else column for column in self.relation.columns)
        timestamp = _KEY if self.relation.timestamp == self.column.name else self.relation.timestamp
        return source_of(replace(self.relation, columns=columns, timestamp=timestamp), [_KEY], {}, earliest)

    def stage(self) -> dict[str, Any]:
        """Return the stage that reads the side's records."""
        select = {
            column.name: quote(column.name) for column in self.relation.all_columns if column != self.column
        }
        name = f"{self.name}_side"
        return {"name": name, "from": f"{self.name}_topic", "select": select, "emit": {"on": "update"}}


@dataclass
class StreamJoin:
    """Translates one query that joins two streams. Raises Untranslatable."""

    query: Query
    relations: Sequence[Relation]
    earliest: bool
    differs: list[str] = field(default_factory=list)

    def result(self) -> QueryResult:
        """Return the pipeline's parts. Raises Untranslatable if a part of the query has no equivalent."""
        self._check()
        join: KsqlJoin = self.query.args["joins"][0]
        self._sides = self._read_sides(join)
        items = list(self._items())
        check_names(items)
        key = self._key(items)
        values = {item.name: self._translator.value(item.node) for item in items if item != key}
        if not values:
            raise Untranslatable("its records have no value, only a key", "Select a column.")
        stages = [side.stage() for side in self._sides]
        stages += [{"name": "pairs", "join": self._join(join)}, self._last(values)]
        source = {f"{side.name}_topic": side.source(self.earliest) for side in self._sides}
        columns = tuple(KsqlColumn(name, typed.type) for name, typed in values.items())
        of_key = (KsqlColumn(key.name, self._sides[0].column.type),)
        return QueryResult(source, stages, of_key, columns, differs=tuple(self.differs))

    def _check(self) -> None:
        if "TABLE" in [relation.kind for relation in self.relations]:
            raise Untranslatable(
                "a join with a table sees the table as it is at each record, and a `lookup` as it is at the "
                "batch",
                "Write a `lookup` if that is enough.",
            )
        if len(self.relations) > 2:
            raise Untranslatable("a join of more than two streams is not translated", "Join two at a time.")
        if self.relations[0].topic == self.relations[1].topic:
            raise Untranslatable("a topic is joined with itself", "Write the stages with one source.")
        for part in ("group", "partition", "having", "window", "limit"):
            if self.query.args.get(part):
                raise Untranslatable(f"a join with {part.upper()} is not translated", "Write two queries.")
        for relation in self.relations:
            check_readable(relation)
            self.differs += spelling(relation)

    def _read_sides(self, join: KsqlJoin) -> tuple[JoinSide, JoinSide]:
        if join.args["side"] not in ("INNER", "LEFT"):
            raise Untranslatable(f"a {join.args['side']} join has a key of its own", "Use LEFT JOIN.")
        if join.args.get("before") is None:
            raise Untranslatable(
                "a join of streams needs WITHIN, which ksqlDB refuses to miss", "Write WITHIN."
            )
        aliases = [name_of(node.args.get("alias") or node.this) for node in (self.query.this, join.this)]
        on = join.args["on"].unnest()
        compared = [on.this.unnest(), on.expression.unnest()] if isinstance(on, exp.EQ) else []
        columns = dict(filter(None, (self._compared(node, aliases) for node in compared)))
        if columns.keys() != set(aliases):
            raise Untranslatable("ON does not compare a column of each side", "Compare two columns.")
        left, right = (
            JoinSide(name, alias, relation, columns[alias])
            for name, alias, relation in zip(("left", "right"), aliases, self.relations, strict=True)
        )
        if left.column.type != right.column.type:
            raise Untranslatable("the compared columns have two types", "Cast one of them in a query before.")
        return left, right

    def _compared(self, node: exp.Expr, aliases: Sequence[str]) -> tuple[str, KsqlColumn] | None:
        if not isinstance(node, exp.Column):
            return None
        name, table = name_of(node.this), node.args.get("table")
        for alias, relation in zip(aliases, self.relations, strict=True):
            column = next((column for column in relation.all_columns if column.name == name), None)
            if column is not None and (table is None or name_of(table) in (alias, relation.name)):
                return alias, column
        return None

    @property
    def _clashing(self) -> set[str]:
        left, right = ({column.name for column in side.relation.all_columns} for side in self._sides)
        return left & right

    @property
    def _translator(self) -> Translator:
        columns: dict[str, Translated] = {}
        for side in self._sides:
            for name, typed in side.columns.items():
                columns[f"{side.alias}.{name}"] = columns[f"{side.relation.name}.{name}"] = typed
                if name not in self._clashing:
                    columns[name] = typed
        return Translator(columns, call)

    def _items(self) -> Iterator[SelectItem]:
        unnamed = 0
        for node in self.query.expressions:
            if isinstance(node, exp.Star):
                yield from (item for side in self._sides for item in _all_of(side))
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                table = name_of(node.args["table"])
                yield from (item for side in self._sides if side.alias == table for item in _all_of(side))
            elif isinstance(node, exp.Column):
                name, qualifier = name_of(node.this), node.args.get("table")
                if qualifier is not None and name in self._clashing:
                    name = f"{name_of(qualifier)}_{name}"
                yield SelectItem(name, node)
            else:
                item, unnamed = item_of(node, unnamed)
                yield item

    def _key(self, items: Sequence[SelectItem]) -> SelectItem:
        """Return the item that is the key: the compared column of the left side, or else of the right."""
        for side in self._sides:
            for item in items:
                node = item.node
                if not isinstance(node, exp.Column) or name_of(node.this) != side.column.name:
                    continue
                table = node.args.get("table")
                if table is None or name_of(table) in (side.alias, side.relation.name):
                    return item
        raise Untranslatable("the compared column is not selected, which ksqlDB refuses", "Select it.")

    def _join(self, join: KsqlJoin) -> dict[str, Any]:
        grace = join.args.get("grace")
        kind = join.args["side"].lower()
        if kind == "left" and grace is None:
            raise Untranslatable(
                "without GRACE PERIOD, ksqlDB sends a record without a match at once, and again with a match",
                "Write GRACE PERIOD.",
            )
        if kind == "left":
            self.differs.append(_LATER)
        if grace is None:
            # what Kafka Streams' JoinWindows.of gives, with which ksqlDB joins
            grace = max(DAY_MS - 2 * join.args["before"], 0)
        before, after = (f"{join.args[bound]}ms" for bound in ("before", "after"))
        return {
            "left": "left_side",
            "right": "right_side",
            "kind": kind,
            "before": before,
            "after": after,
            "grace": f"{grace}ms",
            "clock": "stream",
        }

    def _last(self, values: Mapping[str, Translated]) -> dict[str, Any]:
        stage: dict[str, Any] = {"name": "records"}
        if (where := self.query.args.get("where")) is not None:
            stage["filter"] = self._translator.condition(where)
        return {**stage, "select": {n: v.sql for n, v in values.items()}, "emit": {"on": "update"}}


def _all_of(side: JoinSide) -> Iterator[SelectItem]:
    for column in side.relation.all_columns:
        node = exp.column(
            exp.to_identifier(column.name, quoted=True), table=exp.to_identifier(side.alias, quoted=True)
        )
        yield SelectItem(f"{side.alias}_{column.name}", node)
