"""Constant texts whose meaning depends on the machine's clock, which an expression must not have.

If Spark needs a time and gets a constant text, it reads 'now', 'today', 'yesterday' and 'tomorrow' as times
of the machine's clock: in casts, comparisons and arguments. The same holds for a text that constants are
combined to, such as 'no' || 'w'. tidegate refuses both, except for texts that certainly stay texts.

Where a text becomes a timestamp, Spark reads '10:30' as that time of the machine's today. tidegate refuses it
where the text certainly becomes a timestamp. `engine.times_of_day` asks Spark about the other places, and
`conversions` guards texts in records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from tidegate.expressions.types import ColumnTypes, Type
from tidegate.spec.mistakes import Fault

TIME_OF_DAY = re.compile(r"^[\x00-\x20\x7f]*(T[0-9]|[0-9]{1,2}:)")
"""The beginning of texts that Spark reads as a time of the day on which it runs."""

_MOVING = re.compile(r"(now|today|yesterday|tomorrow)\b\s*\S*", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_MAX_CONVERSIONS = 3
"""The deepest nesting of conversions to timestamps. Each gets a guard that repeats its operand, so that the
expression grows exponentially with the depth.
"""

TIMESTAMPS = ("timestamp", "timestamp_ltz")
CONVERSIONS = ("timestamp", "to_timestamp", "to_timestamp_ltz", "try_to_timestamp")
"""Functions of one argument that convert a text to a timestamp by the rules of `cast`."""

_TIME_FAULT = Fault(
    "Spark reads a time of day without a date as a time of the machine's today",
    "Write the date, too: '2026-01-31 10:30:00'; of times of day, compare `date_format(at, 'HH:mm')`.",
)
_NESTED_FAULT = Fault("conversions to timestamps are nested too deeply", "Split it.")
_COMPARED = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_CONSTANT_CALLS = (
    *("array", "map", "struct", "named_struct", "sequence", "pi", "e", "boolean"),
    *("bigint", "int", "smallint", "tinyint", "double", "float", "decimal"),
    *("date", "timestamp", "to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz"),
    *("make_date", "make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz"),
    *("make_interval", "make_dt_interval", "make_ym_interval"),
    *("timestamp_seconds", "timestamp_millis", "timestamp_micros"),
)
"""Functions that are useful on constants and never return a text."""


def faults(tree: exp.Expr, columns: ColumnTypes) -> list[Fault]:
    """Return a fault for each constant in the expression whose meaning could depend on the time of
    the run.

    Args:
        tree: The expression as sqlglot has parsed it.
        columns: The columns that it may name, with their types.
    """
    texts = [node for node in tree.walk(bfs=False) if _is_text_constant(node)]
    moving = [fault for node in texts if (fault := _moving_text(node, columns)) is not None]
    times = [_TIME_FAULT for node in texts if _is_time_of_day(node, columns)]
    nested = [_NESTED_FAULT] if any(_depth(node) > _MAX_CONVERSIONS for node in tree.walk(bfs=False)) else []
    return [*_computed(tree), *moving, *times, *nested]


def _is_text_constant(node: exp.Expr) -> bool:
    return isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and bool(node.is_string))


def _text(node: exp.Expr) -> str:
    """Return the text of a constant, with escapes replaced as Spark replaces them."""
    written = str(node.this)
    return written if isinstance(node, exp.RawString) else _ESCAPE.sub(_unescaped, written)


def _moving_text(node: exp.Expr, columns: ColumnTypes) -> Fault | None:
    text = _text(node).strip("".join(map(chr, range(33))))
    if not _MOVING.fullmatch(text) or _stays_text(node, columns):
        return None
    fix = "Use a timestamp that is in the record; to compare text, compare it with a `string` column."
    return Fault(f"Spark reads {text!r} off the machine's clock where it needs a time", fix)


def _is_time_of_day(node: exp.Expr, columns: ColumnTypes) -> bool:
    """Return whether a constant is a time of day and certainly becomes a timestamp."""
    parent = node.parent
    if parent is None or not TIME_OF_DAY.match(_text(node)):
        return False
    # Spark converts the text to the type of what it is compared with.
    if isinstance(parent, (*_COMPARED, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)):
        return any(_is_timestamp(other, columns) for other in parent.iter_expressions() if other is not node)
    return _is_conversion(parent)


def _is_conversion(node: exp.Expr) -> bool:
    """Return whether a node converts a text to a timestamp by Spark's own rules, without a format."""
    if isinstance(node, exp.Cast):
        return str(node.to.sql("spark")).lower() in TIMESTAMPS
    is_call = isinstance(node, exp.Anonymous) and str(node.this).lower() in CONVERSIONS
    return is_call and len(node.expressions) == 1


def _is_timestamp(node: exp.Expr, columns: ColumnTypes) -> bool:
    type_ = _column_type(node, columns)
    return _is_conversion(node) or (type_ is not None and type_.kind == "timestamp")


def _depth(node: exp.Expr) -> int:
    """Return the number of conversions around a conversion, itself included; 0 for other nodes."""
    if not _is_conversion(node):
        return 0
    depth, outer = 1, node.parent
    while outer is not None:
        depth += _is_conversion(outer)
        outer = outer.parent
    return depth


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of an escape, as Spark reads it."""
    short, long, octal, character = match.groups()
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF else ""
    return chr(int(octal, 8)) if octal else _CONTROLS.get(character, character)


def _stays_text(node: exp.Expr, columns: ColumnTypes) -> bool:
    """Return whether a constant certainly stays a text: it is compared with a text column, or is a result of
    a CASE that depends on the record and has only texts as results.
    """
    parent = node.parent
    if isinstance(parent, _COMPARED):
        return _is_text(parent.right if node.arg_key == "this" else parent.left, columns)
    if isinstance(parent, exp.In):
        return node.arg_key == "expressions" and _is_text(parent.this, columns)
    case = parent.parent if isinstance(parent, exp.If) and node.arg_key == "true" else parent
    if not isinstance(case, exp.Case) or (case is parent and node.arg_key != "default"):
        return False
    results = [branch.args["true"] for branch in case.args["ifs"]] + [case.args.get("default")]
    return case.find(exp.Column) is not None and all(r is None or r.is_string for r in results)


def _is_text(node: exp.Expr, columns: ColumnTypes) -> bool:
    type_ = _column_type(node, columns)
    return type_ is not None and type_.kind == "string"


def _column_type(node: exp.Expr, columns: ColumnTypes) -> Type | None:
    """Return the type of a column itself; None for a field of it, or if the type is unknown."""
    if not isinstance(node, exp.Column) or len(node.parts) > 1 or isinstance(node.parent, exp.Dot):
        return None
    types = {name.lower(): type_ for name, type_ in columns.items()}
    return types.get(node.name.lower())


def _computed(tree: exp.Expr) -> Iterator[Fault]:
    """Yield a fault for each outermost part that computes a text from constants only."""
    # Pruned, so that one computed text is one fault, and not one for each of its parts.
    for node in tree.walk(bfs=False, prune=_is_computed):
        if _is_computed(node):
            what = f"{node.this}(…)" if isinstance(node, exp.Anonymous) else type(node).__name__.lower()
            yield Fault(f"a part of it has only constants (`{what}`)", "Write the result itself.")


def _is_computed(node: exp.Expr) -> bool:
    """Return whether Spark would fold the node to a constant text. It does not fold inside of a lambda."""
    return _makes_text(node) and node.find(exp.Column) is None and node.find_ancestor(exp.Lambda) is None


def _makes_text(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() not in _CONSTANT_CALLS
    if isinstance(node, exp.Cast):
        return node.to.this in exp.DataType.TEXT_TYPES and not isinstance(node.this, exp.Literal)
    return isinstance(node, (exp.DPipe, exp.Trim, exp.Overlay, exp.Substring))
