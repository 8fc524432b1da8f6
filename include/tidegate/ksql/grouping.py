"""The aggregates of a query, and the expressions over them, as stages of a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from sqlglot import exp

from tidegate.ksql.dialect import KsqlWindow
from tidegate.ksql.expressions import Translator
from tidegate.ksql.relations import Relation, SelectItem, normal
from tidegate.ksql.translated import Translated, with_type
from tidegate.ksql.types import BIGINT, BOOLEAN, DOUBLE, KsqlType, Untranslatable, name_of
from tidegate.model.names import quote

_MERGED = (
    "of sessions that merge, ksqlDB takes the value that came first or last, and tidegate that of the first "
    "or last session"
)


@dataclass
class AggregateQuery:
    """The aggregates of a query, and the expressions over them."""

    translator: Translator
    window: KsqlWindow | None
    relation: Relation
    arguments: dict[str, str] = field(default_factory=dict)
    folded: dict[str, Folded] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    computes: bool = False

    def value(self, node: exp.Expr, keys: Sequence[SelectItem]) -> Translated:
        """Return an item over aggregates and keys. An aggregate is `{name}` in it."""
        columns: dict[str, Translated] = {}
        alone = node.unnest()
        is_column = isinstance(alone, exp.Column) or normal(alone) in {normal(item.node) for item in keys}
        self.computes = self.computes or not (is_column or _is_aggregate_call(alone))
        if not is_column and self._is_of_records(alone):
            return self._of_records(alone, keys)

        def plain(part: exp.Expr) -> exp.Expr:
            if _is_bound(part):
                return self._placed(columns, self._bound(name_of(part.this)))
            if _is_aggregate_call(part):
                return self._placed(columns, self._fold(part))
            return part

        changed = node.copy().transform(plain)
        groups = {normal(item.node): item for item in keys}

        def grouped(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Expr) and not isinstance(part, exp.Identifier):
                item = groups.get(normal(part))
                if item is not None:
                    return self._placed(columns, self._key(item))
            return part

        changed = changed.transform(grouped)
        return replace(self.translator, columns=columns).value(changed)

    def _is_of_records(self, node: exp.Expr) -> bool:
        """Return whether each record of a window has the item's value: of the key, and of fixed bounds."""
        if self.window is None or any(map(_is_aggregate_call, node.find_all(exp.Anonymous))):
            return False
        return self.window.args["kind"] == "TUMBLING" or not any(map(_is_bound, node.find_all(exp.Column)))

    def _of_records(self, node: exp.Expr, keys: Sequence[SelectItem]) -> Translated:
        """Return such an item. Spark computes it of each record, with all of its functions."""
        groups = {normal(item.node): item for item in keys}
        columns: dict[str, Translated] = {}

        def of_record(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Identifier):
                return part
            if _is_bound(part):
                name, column = name_of(part.this), self._record_bound(name_of(part.this))
            elif (item := groups.get(normal(part))) is not None:
                name, column = f"KSQL_GROUP_{len(columns)}", self.translator.value(item.node)
            else:
                return part
            columns[name] = column
            return exp.column(exp.to_identifier(name, quoted=True))

        changed = node.copy().transform(of_record)
        typed = replace(self.translator, columns=columns).value(changed)
        if not columns:
            return typed
        argument = self._argument(replace(typed, sql=with_type(typed.sql, typed.type)))
        self._placed(columns, Folded(f"last({argument})", Translated("{}", typed.type), False, ""))
        return list(columns.values())[-1]

    def _placed(self, columns: dict[str, Translated], folded: Folded) -> exp.Expr:
        name = next(
            (n for n, other in self.folded.items() if other == folded), f"KSQL_AGG_{len(self.folded)}"
        )
        self.folded[name] = folded
        columns[name] = replace(folded.value, sql=folded.value.sql.replace("{}", f"{{{name}}}"))
        if folded.differs:
            self.differs.append(folded.differs)
        return exp.column(exp.to_identifier(name, quoted=True))

    def _fold(self, node: exp.Anonymous) -> Folded:
        star = any(isinstance(part, exp.Star) for part in node.expressions)
        arguments = [] if star else [self.translator.value(part) for part in node.expressions]
        arguments[:1] = [replace(argument, sql=self._argument(argument)) for argument in arguments[:1]]
        name = str(node.this).upper()
        folded = fold(name, arguments, star, alone=self.window is None)
        if name.endswith("_BY_OFFSET") and self.window is not None and self.window.args["kind"] == "SESSION":
            return replace(folded, differs=_MERGED)
        return folded

    def _key(self, item: SelectItem) -> Folded:
        typed = self.translator.value(item.node)
        return Folded(
            f"last({self._argument(typed)})", Translated("{}", typed.type, is_certain=True), False, ""
        )

    def _argument(self, argument: Translated) -> str:
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
        time = replace(time, sql=with_type(time.sql, BIGINT))
        kind = self.window.args["kind"]
        if kind == "HOPPING":
            raise Untranslatable(f"{name} of hopping windows has no equivalent", "Take it from the window.")
        if kind == "SESSION":
            which = "min" if name == "WINDOWSTART" else "max"
            return Folded(
                f"{which}({self._argument(time)})", Translated("{}", BIGINT, is_certain=True), False, ""
            )
        bound = self._record_bound(name)
        return Folded(f"min({self._argument(bound)})", Translated("{}", BIGINT, is_certain=True), False, "")

    def _record_bound(self, name: str) -> Translated:
        """Return the start or the end of the tumbling window that a record is in."""
        assert self.window is not None
        size = self.window.args["size"]
        time = self.translator.value(exp.column(exp.to_identifier("ROWTIME", quoted=True)))
        start = f"({time.sql} - pmod({time.sql}, {size}L))"
        sql = start if name == "WINDOWSTART" else f"({start} + {size}L)"
        return Translated(with_type(sql, BIGINT), BIGINT, is_certain=True)

    def stage(self, columns: Mapping[str, str], values: Mapping[str, Translated]) -> dict[str, Any]:
        """Return `reduce` of the stage.

        Args:
            columns: Argument -> its expression there.
        """
        aggregates = {name: _filled(folded.sql, columns) for name, folded in self.folded.items()}
        if self.follows:
            return {"reduce": aggregates}
        return {"reduce": {name: _named(value.sql, aggregates) for name, value in values.items()}}

    @property
    def follows(self) -> bool:
        """Whether a stage that follows computes with the aggregates: all of Spark's functions are there."""
        wraps = any(folded.wraps for folded in self.folded.values())
        return self.window is None and (self.computes or wraps)

    def after(self, values: Mapping[str, Translated]) -> list[dict[str, Any]]:
        """Return the stage that follows, if there is one."""
        if not self.follows:
            return []
        names = {name: quote(name) for name in self.folded}
        select = {name: _named(value.sql, names) for name, value in values.items()}
        return [{"name": "results", "select": select, "emit": {"on": "update"}}]


def _is_aggregate_call(node: exp.Expr) -> TypeGuard[exp.Anonymous]:
    return isinstance(node, exp.Anonymous) and is_aggregate(str(node.this).upper())


def _is_bound(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and name_of(node.this) in ("WINDOWSTART", "WINDOWEND")


def _filled(sql: str, columns: Mapping[str, str]) -> str:
    for name, expression in columns.items():
        sql = sql.replace(f"<{name}>", expression)
    return sql


def _named(sql: str, expressions: Mapping[str, str]) -> str:
    for name, expression in expressions.items():
        sql = sql.replace(f"{{{name}}}", expression)
    return sql


_NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")
_ORDERED = (*_NUMBERS, "STRING", "DATE", "TIME", "TIMESTAMP")


@dataclass(frozen=True)
class KsqlAggregate:
    """An aggregate of one column.

    Args:
        takes: The kinds of the column's type.
        sql: The aggregate, with the column as `{0}`.
        result: What the value is, with the aggregate as `{0}` and its type as `{type}`.
        type: The type of the value; None: that of the column.
        is_list: Whether the value is a list of the column's type.
        wraps: Whether the list has nulls, too: they are wrapped, and unwrapped in a stage that follows.
        differs: Why the value may differ from ksqlDB's; empty if it does not.
    """

    takes: tuple[str, ...] = ()
    sql: str = ""
    result: str = "{0}"
    type: KsqlType | None = None
    is_list: bool = False
    wraps: bool = False
    differs: str = ""


AGGREGATES: Mapping[str, KsqlAggregate] = {
    "COUNT": KsqlAggregate((), "count({0})", type=BIGINT),
    # ksqlDB begins with 0: the sum of nulls is no null
    "SUM": KsqlAggregate(_NUMBERS, "sum({0})", "cast(coalesce({0}, 0) as {type})"),
    "MIN": KsqlAggregate(_ORDERED, "min({0})"),
    "MAX": KsqlAggregate(_ORDERED, "max({0})"),
    "AVG": KsqlAggregate(
        ("INTEGER", "BIGINT", "DOUBLE"), "avg({0})", "coalesce({0}, cast(0 as double))", DOUBLE
    ),
    "LATEST_BY_OFFSET": KsqlAggregate((), "last({0})"),
    "EARLIEST_BY_OFFSET": KsqlAggregate((), "first({0})"),
    "COLLECT_LIST": KsqlAggregate((), "collect_list({0})", is_list=True, wraps=True),
    "COLLECT_SET": KsqlAggregate((), "collect_set({0})", is_list=True, wraps=True),
    "TOPK": KsqlAggregate(("INTEGER", "BIGINT", "DOUBLE", "STRING"), "top({0}, {1})", is_list=True),
    "COUNT_DISTINCT": KsqlAggregate(
        (),
        "count(distinct {0})",
        type=BIGINT,
        differs="ksqlDB estimates COUNT_DISTINCT, and this count is exact",
    ),
}
WITHOUT_EQUIVALENT = ("HISTOGRAM", "TOPKDISTINCT", "STDDEV_SAMP", "STDDEV_SAMPLE", "CORRELATION", "ATTR")
"""Aggregates that are known and have no equivalent."""


@dataclass(frozen=True)
class Folded:
    """An aggregate of a query: the aggregate of the stage, and the value that is made of it."""

    sql: str
    value: Translated
    wraps: bool
    differs: str


def is_aggregate(name: str) -> bool:
    """Return whether a function is an aggregate, with or without an equivalent."""
    return name in AGGREGATES or name in WITHOUT_EQUIVALENT


def fold(name: str, arguments: Sequence[Translated], star: bool, alone: bool) -> Folded:
    """Translate an aggregate. Raises Untranslatable.

    Args:
        star: Whether its argument is `*`.
        alone: Whether a stage may follow, which unwraps lists.
    """
    if name not in AGGREGATES:
        raise Untranslatable(f"the aggregate {name} has no equivalent", "Write an aggregate in Python.")
    aggregate = AGGREGATES[name]
    if (
        star
        or (name == "COUNT" and not arguments)
        or (name == "COUNT" and len(arguments) == 1 and arguments[0].literal is not None)
    ):
        return Folded("count(*)", Translated("{}", BIGINT, is_certain=True), False, "")
    keeps_nulls = False
    if name.endswith("_BY_OFFSET") and len(arguments) == 2 and arguments[1].type == BOOLEAN:
        keeps_nulls = arguments[1].sql == "false"
        arguments = arguments[:1]
    literal = [argument.literal for argument in arguments[1:]]
    if len(arguments) != (2 if "{1}" in aggregate.sql else 1) or not all(literal):
        raise Untranslatable(f"{name} of {len(arguments)} arguments has no equivalent", "Use one argument.")
    argument = arguments[0]
    if aggregate.takes and argument.type.kind not in aggregate.takes:
        raise Untranslatable(f"{name} of {argument.type.kind} has no equivalent", "Cast the argument.")
    inner = argument.sql
    wraps = (aggregate.wraps or keeps_nulls) and not argument.is_certain
    if wraps:
        if not alone:
            raise Untranslatable(
                f"{name} has nulls, and none within a window", "Aggregate COALESCE of the column."
            )
        inner = f"named_struct('item', {argument.sql})"
    type_ = KsqlType("ARRAY", (argument.type,)) if aggregate.is_list else aggregate.type or argument.type
    result = aggregate.result.replace("{type}", type_.ddl)
    if name == "SUM" and type_.kind == "DECIMAL":
        result = "coalesce({0}, 0)"  # a window's results are cast to no decimal
    if wraps:
        result = "{0}.item" if keeps_nulls else "transform({0}, e -> e.item)"
    sql = aggregate.sql.replace("{0}", inner).replace("{1}", literal[0] or "" if literal else "")
    value = Translated(result.replace("{0}", "{}"), type_, is_certain=aggregate.type == BIGINT)
    return Folded(sql, value, wraps, aggregate.differs)
