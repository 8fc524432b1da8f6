"""INSERT INTO … VALUES: records for a case file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from tidegate.ksql.dialect import InsertValues
from tidegate.ksql.relations import Relation
from tidegate.ksql.remarks import Untranslatable
from tidegate.ksql.types import name_of


@dataclass(frozen=True)
class Inserted:
    """A record of a relation: its key's columns and its value's; `timestamp` is in epoch ms, or None."""

    relation: Relation
    columns: dict[str, Any]
    timestamp: int | None


def inserted(tree: InsertValues, relation: Relation, line: int) -> Inserted:
    """Read a record. Raises Untranslatable for values that are no literals."""
    named = tree.args.get("columns")
    names = [name_of(column) for column in named or ()] or [column.name for column in relation.all_columns]
    values = [_value(node) for node in tree.expressions]
    if len(names) != len(values):
        raise Untranslatable("it has not as many values as columns", "Write a value for each column.")
    columns = dict(zip(names, values, strict=True))
    time = columns.pop("ROWTIME", None)
    unknown = columns.keys() - {column.name for column in relation.all_columns}
    if unknown:
        raise Untranslatable(f"{relation.name} has no column {sorted(unknown)[0]}", "Correct the name.")
    return Inserted(relation, columns, time if isinstance(time, int) else None)


def _value(node: exp.Expr) -> Any:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        return -_value(node.this)
    if isinstance(node, exp.Literal):
        text = str(node.this)
        return text if node.is_string else int(text) if text.isdigit() else float(text)
    if isinstance(node, exp.Array):
        return [_value(item) for item in node.expressions]
    if isinstance(node, exp.Anonymous) and str(node.this).upper() in ("MAP", "STRUCT"):
        return {
            str(part.this.this) if str(node.this).upper() == "MAP" else name_of(part.this): _value(
                part.expression
            )
            for part in node.expressions
        }
    raise Untranslatable(f"`{node.sql()}` is no literal", "Write the value itself.")
