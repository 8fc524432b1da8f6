"""ksqlDB's aggregates that have an equivalent: name -> the aggregate of a stage, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.ksql.remarks import Untranslatable
from tidegate.ksql.translated import Translated
from tidegate.ksql.types import BIGINT, BOOLEAN, DOUBLE, KsqlType

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
    if wraps:
        result = "{0}.item" if keeps_nulls else "transform({0}, e -> e.item)"
    sql = aggregate.sql.replace("{0}", inner).replace("{1}", literal[0] or "" if literal else "")
    value = Translated(result.replace("{0}", "{}"), type_, is_certain=aggregate.type == BIGINT)
    return Folded(sql, value, wraps, aggregate.differs)
