"""Constants that are none: texts that Spark reads off the machine's clock.

Where Spark needs a time and finds a constant text, 'now', 'today', 'yesterday' and 'tomorrow' are the
machine's time: in `cast`, in comparisons and in arguments alike. So is a text that constants add up to,
as in 'no' || 'w'. Both are refused, but for texts that surely stay texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sqlglot import exp

from tidegate.spec.columns import Type
from tidegate.spec.mistakes import Fault

Known = Mapping[str, "Type | None"]
"""The columns that an expression may name; None where the type is not known."""

_MOVING = re.compile(r"(now|today|yesterday|tomorrow)\b\s*\S*", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a"}
_COMPARED = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_CONSTANT_CALLS = (
    *("array", "map", "struct", "named_struct", "sequence", "pi", "e", "boolean"),
    *("bigint", "int", "smallint", "tinyint", "double", "float", "decimal"),
    *("date", "timestamp", "to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz"),
    *("make_date", "make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz"),
    *("make_interval", "make_dt_interval", "make_ym_interval"),
    *("timestamp_seconds", "timestamp_millis", "timestamp_micros"),
)
"""Functions that are useful on constants, and cannot make a text of them."""


def faults(tree: exp.Expr, columns: Known) -> list[Fault]:
    """Every constant in the expression that could mean another thing at another time."""
    texts = (_moving_text(node, columns) for node in tree.walk(bfs=False))
    return [*_computed(tree), *filter(None, texts)]


def _moving_text(node: exp.Expr, columns: Known) -> Fault | None:
    if not (isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string)):
        return None
    text = _ESCAPE.sub(_unescaped, str(node.this)).strip("".join(map(chr, range(33))))
    if not _MOVING.fullmatch(text) or _stays_text(node, columns):
        return None
    fix = "Use a timestamp that is in the record; to compare text, compare it with a `string` column."
    return Fault(f"Spark reads {text!r} off the machine's clock where it needs a time", fix)


def _unescaped(match: re.Match[str]) -> str:
    """One escape in a text, as Spark reads it."""
    short, long, octal, character = match.groups()
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF else ""
    return chr(int(octal, 8)) if octal else _CONTROLS.get(character, character)


def _stays_text(node: exp.Expr, columns: Known) -> bool:
    """Compared with a text column, or a result of a CASE that depends on the record and gives only texts."""
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


def _is_text(node: exp.Expr, columns: Known) -> bool:
    if not isinstance(node, exp.Column) or len(node.parts) > 1 or isinstance(node.parent, exp.Dot):
        return False
    types = {name.lower(): type_ for name, type_ in columns.items()}
    type_ = types.get(node.name.lower())
    return type_ is not None and type_.kind == "string"


def _computed(tree: exp.Expr) -> Iterator[Fault]:
    """The outermost parts that compute a text out of constants."""
    for node in tree.walk(bfs=False, prune=_is_computed):
        if _is_computed(node):
            what = f"{node.this}(…)" if isinstance(node, exp.Anonymous) else type(node).__name__.lower()
            yield Fault(f"a part of it has only constants (`{what}`)", "Write the result itself.")


def _is_computed(node: exp.Expr) -> bool:
    """Spark folds constants, but not inside of a lambda."""
    return _makes_text(node) and node.find(exp.Column) is None and node.find_ancestor(exp.Lambda) is None


def _makes_text(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() not in _CONSTANT_CALLS
    if isinstance(node, exp.Cast):
        return node.to.this in exp.DataType.TEXT_TYPES and not isinstance(node.this, exp.Literal)
    return isinstance(node, (exp.DPipe, exp.Trim, exp.Overlay, exp.Substring))
