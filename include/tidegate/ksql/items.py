"""The items of a SELECT: their names, and when two of them mean the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlglot import exp

from tidegate.ksql.relations import Relation
from tidegate.ksql.types import name_of


@dataclass(frozen=True)
class SelectItem:
    """An item of SELECT: its name, its node, and the expression."""

    name: str
    node: exp.Expr


def spelling(relation: Relation) -> list[str]:
    """Return why fields of records may not be read: ksqlDB ignores the case of all names in JSON."""
    nested = [c.name for c in relation.columns if "STRUCT" in {type_.kind for type_ in c.type.inner}]
    if not nested or relation.is_derived or relation.value_format != "JSON":
        return []
    return [f"fields within `{nested[0]}` are read only if they are written as in the statement's upper case"]


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
