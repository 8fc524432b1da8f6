"""What stands for an expression of ksqlDB: the text of Spark SQL, its type, and where it fails."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlglot import exp

from tidegate.ksql import types
from tidegate.ksql.types import BIGINT, DOUBLE, INTEGER, NULL, STRING, KsqlType, Untranslatable


@dataclass(frozen=True)
class Translated:
    """An expression of Spark SQL with its type in ksqlDB.

    Args:
        sql: A text that stands for itself: a name, a call, or something in brackets.
        fails: Expressions that are null where ksqlDB fails: then the whole expression is null there.
        is_certain: Whether it is never null.
        literal: The text of a literal; None for others.
    """

    sql: str
    type: KsqlType
    fails: tuple[str, ...] = ()
    is_certain: bool = False
    literal: str | None = None


def with_type(sql: str, type_: KsqlType) -> str:
    """Return an expression whose type is written in it, as keys and formats other than JSON need it."""
    is_written = sql.startswith(("`", "cast(")) or type_ == NULL
    return sql if is_written else f"cast({sql} as {type_.ddl})"


def guarded(sql: str, fails: Sequence[str]) -> str:
    """Return an expression that is null where one of `fails` is null.

    Example: `guarded("a + b", ["b"])` is `(case when b is null then null else a + b end)`.
    """
    if not fails:
        return sql
    return f"(case when {' or '.join(f'{failing} is null' for failing in fails)} then null else {sql} end)"


CASTS: Mapping[tuple[str, str], str] = {
    ("BOOLEAN", "STRING"): "cast({0} as string)",
    ("INTEGER", "BIGINT"): "cast({0} as bigint)",
    ("INTEGER", "DOUBLE"): "cast({0} as double)",
    ("BIGINT", "DOUBLE"): "cast({0} as double)",
    ("DECIMAL", "DOUBLE"): "cast({0} as double)",
    ("INTEGER", "STRING"): "cast({0} as string)",
    ("BIGINT", "STRING"): "cast({0} as string)",
    ("DOUBLE", "STRING"): "cast({0} as string)",
    ("INTEGER", "DECIMAL"): "try_cast({0} as {1})",
    ("BIGINT", "DECIMAL"): "try_cast({0} as {1})",
    ("DECIMAL", "DECIMAL"): "try_cast({0} as {1})",
    ("DOUBLE", "INTEGER"): "cast({0} as int)",
    ("DOUBLE", "BIGINT"): "cast({0} as bigint)",
    ("BIGINT", "INTEGER"): "cast({0} as int)",
    ("TIMESTAMP", "STRING"): r"date_format(timestamp_millis({0}), 'yyyy-MM-dd\'T\'HH:mm:ss.SSS')",
    ("TIMESTAMP", "DATE"): "cast(({0} - pmod({0}, 86400000L)) div 86400000 as int)",
    ("TIMESTAMP", "TIME"): "cast(pmod({0}, 86400000L) as int)",
    ("DATE", "STRING"): "cast(date_from_unix_date({0}) as string)",
    ("DATE", "TIMESTAMP"): "(cast({0} as bigint) * 86400000L)",
    ("DECIMAL", "STRING"): "cast({0} as string)",
    ("DECIMAL", "INTEGER"): "cast({0} as int)",
    ("DECIMAL", "BIGINT"): "cast({0} as bigint)",
    ("STRING", "BOOLEAN"): r"(lower({0}) rlike "
    r"'^[\\x00-\\x20]*(t|tr|tru|true|y|ye|yes)[\\x00-\\x20]*$')",
    ("STRING", "INTEGER"): r"(case when {0} rlike '^[\\x00-\\x20]*[+-]?[0-9]+[\\x00-\\x20]*$' "
    "then try_cast({0} as int) end)",
    ("STRING", "BIGINT"): r"(case when {0} rlike '^[\\x00-\\x20]*[+-]?[0-9]+[\\x00-\\x20]*$' "
    "then try_cast({0} as bigint) end)",
    ("STRING", "DOUBLE"): r"(case when {0} rlike "
    r"'^[\\x00-\\x20]*[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?[\\x00-\\x20]*$' "
    "then try_cast({0} as double) end)",
}
"""(from, to) -> the expression, which is null where the cast fails."""


def text_of(node: exp.Expr) -> str:
    return node.sql()


def quoted_text(text: str) -> str:
    """Return a literal of Spark SQL, in which a backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


DAY_MS = 86_400_000
INFINITY = "(1e308 * 10)"
"""The infinite double, also over the aggregates of a window, where no text is cast to it."""
_WILDCARDS = {"%": ".*", "_": "."}


def like(sql: str, pattern: str) -> str:
    """Return the condition that a text is like a pattern, as a regular expression as in ksqlDB: in Spark's
    LIKE a wildcard is also a line end, and a backslash escapes.

    Raises Untranslatable for a pattern with `\\E`, which ends a quoted text in a regular expression.
    """
    if "\\E" in pattern:
        raise Untranslatable("a pattern of LIKE with `\\E` has no equivalent", "Use INSTR or REGEXP_EXTRACT.")
    parts = [_WILDCARDS.get(part, f"\\Q{part}\\E") for part in re.split("([%_])", pattern) if part]
    return f"{sql} rlike " + quoted_text("".join(["\\A", *parts, "\\z"]))


def literal(node: exp.Literal) -> Translated:
    text = str(node.this)
    if node.is_string:
        return Translated(quoted_text(text), STRING, is_certain=True, literal=text)
    if text.isdigit():
        if int(text) >= 2**63:
            raise Untranslatable(f"{text} is too large for BIGINT", "Write a smaller number.")
        small = int(text) < 2**31
        sql = text if small else f"{text}L"
        return Translated(sql, INTEGER if small else BIGINT, is_certain=True, literal=text)
    if "E" in text.upper():
        if 0 < float(text) < sys.float_info.min or math.isinf(float(text)):
            raise Untranslatable(f"{text} is no usual DOUBLE", "Write a number between 3E-308 and 1.7E308.")
        return Translated(f"({text})", DOUBLE, is_certain=True, literal=text)
    whole, _, fraction = text.partition(".")
    digits = max(len((whole + fraction).lstrip("0")), len(fraction), 1)
    return Translated(
        f"{text}BD", KsqlType("DECIMAL", precision=digits, scale=len(fraction)), is_certain=True, literal=text
    )


def failing(sql: str, type_: KsqlType, *operands: Translated) -> Translated:
    """Return an operation that fails on a null operand, or has no result."""
    fails = () if all(operand.is_certain for operand in operands) and "/" not in sql else (sql,)
    return Translated(sql, type_, fails, is_certain=not fails)


def as_double(operand: Translated) -> Translated:
    if operand.type == DOUBLE:
        return operand
    # an exponent makes a literal a double, also over the aggregates of a window
    sql = f"cast({operand.sql} as double)" if operand.literal is None else f"({operand.literal}e0)"
    return Translated(sql, DOUBLE, operand.fails, operand.is_certain, operand.literal)


def as_decimal(type_: KsqlType) -> KsqlType:
    if type_.kind == "DECIMAL":
        return type_
    return KsqlType("DECIMAL", precision=10 if type_ == INTEGER else 19)


_TIME = re.compile(
    r"(\d{4}(?:-\d\d){0,2}|(\d{4}-\d\d-\d\dT(?:\d\d(?::\d\d(?::\d\d(?:\.\d{1,3})?)?)?)?)(Z|[+-]\d\d:?\d\d)?)"
)
_FIRST_TIME = "0000-01-01T00:00:00.000"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def as_time(operand: Translated, other: Translated, node: exp.Expr) -> Translated:
    """Return the time that a literal text is beside a time or ROWTIME; what is left out is the first.

    Args:
        other: What the operand is compared with; `node` is its expression.
    """
    is_rowtime = isinstance(node, exp.Column) and types.name_of(node.this) == "ROWTIME"
    is_text = operand.literal is not None and operand.type == STRING
    if not is_text or not (is_rowtime or other.type.kind in ("TIMESTAMP", "DATE")):
        return operand
    ms = _epoch_ms(operand.literal or "")
    sql = str(ms // DAY_MS) if other.type.kind == "DATE" else f"{ms}L"
    return Translated(f"({sql})", other.type, is_certain=True)


def _epoch_ms(text: str) -> int:
    try:
        match = _TIME.fullmatch(text)
        if match is None:
            raise ValueError(text)
        written, zone = match[2] or match[1], (match[3] or "Z").replace("Z", "+0000").replace(":", "")
        filled = written + _FIRST_TIME[len(written) :]
        at = datetime.fromisoformat(f"{filled}{zone[:3]}:{zone[3:]}")
    except ValueError:
        raise Untranslatable(f"'{text}' is no time", "Write it like '2020-05-26T23:59:58.000'.") from None
    return (at - _EPOCH) // timedelta(milliseconds=1)


def time_value(value: Any, type_: KsqlType) -> Any:
    """Return an inserted value as JSON and DELIMITED have it: the text of a time as a number."""
    if not isinstance(value, str) or type_.kind not in ("TIMESTAMP", "DATE", "TIME"):
        return value
    if type_.kind == "TIME":
        return _epoch_ms(f"1970-01-01T{value}")
    return _epoch_ms(value) // (DAY_MS if type_.kind == "DATE" else 1)


def comparable(left: Translated, right: Translated, node: exp.Expr) -> tuple[Translated, Translated]:
    """Return both sides in a form that Spark compares as ksqlDB does.

    Raises Untranslatable if ksqlDB compares them in a way that Spark has not.
    """
    kinds = {left.type.kind, right.type.kind}
    if "DOUBLE" in kinds and kinds <= set(types.NUMBERS):
        return as_double(left), as_double(right)
    same = left.type == right.type and "MAP" not in {inner.kind for inner in left.type.inner}
    if same or kinds <= {*types.INTEGERS, "DECIMAL"} or "NULL" in kinds:
        return left, right
    raise Untranslatable(
        f"`{text_of(node)}` compares {left.type.kind} with {right.type.kind}", "Cast both sides to one type."
    )


def common_type(items: Sequence[Translated], node: exp.Expr) -> KsqlType:
    """Return the one type of all items; nulls have any. Raises Untranslatable if there are several."""
    kinds = {item.type for item in items if item.type != NULL}
    if kinds and kinds <= {INTEGER, BIGINT, DOUBLE}:
        return next(type_ for type_ in (DOUBLE, BIGINT, INTEGER) if type_ in kinds)
    if len(kinds) != 1:
        raise Untranslatable(f"`{text_of(node)}` has values of several types", "Cast them to one type.")
    return kinds.pop()


def as_type(operand: Translated, type_: KsqlType) -> Translated:
    return (
        operand
        if operand.type in (type_, NULL)
        else Translated(f"cast({operand.sql} as {type_.ddl})", type_, operand.fails)
    )
