"""Explicit conversions to timestamps in an expression: each gets a guard against times of day.

Spark reads a text such as '10:30' or 'T10' as that time of the day on which it runs. Literals are refused
when the file is read (`faults`). Expressions in which Spark converts a text implicitly are refused when
they are computed (`spark.semantics`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from tidegate.expressions.types import ColumnTypes, Type
from tidegate.model import lexis
from tidegate.model.mistakes import Fault

TIME_OF_DAY = re.compile(r"^[\x00-\x20\x7f]*(T[0-9]|[0-9]{1,2}:)")
"""The beginning of texts that Spark reads as a time of the day on which it runs."""

_MOVING = re.compile(r"(now|today|yesterday|tomorrow)\b\s*\S*", re.IGNORECASE)
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
    return written if isinstance(node, exp.RawString) else lexis.unescaped(written)


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


_REFUSAL = "a time of day is no timestamp without a date: Spark would take the day on which it runs"
_NO_COLUMNS = ("interval", "timestamp", "timestamp_ltz", "timestamp_ntz", "date")
"""Words before a text that make it a literal of a type: a column cannot replace such a text."""


@dataclass(frozen=True)
class _Conversion:
    """A conversion to a timestamp in an expression.

    Args:
        start: The offset of its first character in the text; `end` is behind its last one.
        operand: The offsets of its operand.
        tries: Whether it returns null for a text that is not a timestamp, as `try_cast` does.
    """

    start: int
    end: int
    operand: range
    tries: bool


def guarded(sql: str) -> str:
    """Return the expression with a guard in each conversion to a timestamp.

    The guard treats a time of day like a text that is not a timestamp: the conversion fails, or `try_cast`
    and `try_to_timestamp` return null.

    Example: `cast(at as timestamp)` becomes `cast(if(regexp_like(…), raise_error(…), at) as timestamp)`.
    """

    def guard(conversion: _Conversion, operand: str) -> str:
        # `if` evaluates only the branch that it takes, so the conversion never sees a time of day.
        is_time = f"regexp_like(cast({operand} as string), r'{TIME_OF_DAY.pattern}')"
        refused = "null" if conversion.tries else f"raise_error({_refusal(sql, conversion)})"
        before = sql[conversion.start : conversion.operand.start]
        return f"{before}if({is_time}, {refused}, {operand}){sql[conversion.operand.stop : conversion.end]}"

    return _rewritten(sql, guard)


def _refusal(sql: str, conversion: _Conversion) -> str:
    """Return the message of a conversion's guard, as a literal of SQL."""
    # Backslashes first: the quotes' own backslashes must not be doubled.
    written = sql[conversion.start : conversion.end].replace("\\", "\\\\").replace("'", "\\'")
    return f"'`{written}`: {_REFUSAL}'"


def as_written(fragment: str, expressions: Iterable[str]) -> str:
    """Return the original of the guarded expression that contains `fragment`, which Spark has shown in an
    error.

    Args:
        fragment: The part of an expression that Spark's message quotes.
        expressions: The expressions as the pipeline file has them.

    Returns `fragment` itself if it has no guard.
    """
    if _REFUSAL not in fragment and TIME_OF_DAY.pattern not in fragment:
        return fragment
    return next((sql for sql in expressions if fragment in guarded(sql)), fragment)


def without_conversions(sql: str) -> str:
    """Return the expression with each conversion replaced by a timestamp that needs no conversion of a text.

    `spark.semantics` then asks Spark whether it still converts a text implicitly.

    Example: `cast(at as timestamp)` becomes `timestamp_millis(length(cast(at as string)))`.
    """
    return _rewritten(sql, lambda _, operand: f"timestamp_millis(length(cast({operand} as string)))")


def with_constants_as_columns(sql: str, column: str) -> str:
    """Return the expression with each constant that is a time of day replaced by a column.

    Args:
        sql: The expression.
        column: The name of the column, which must be a text.
    """
    words, _ = lexis.split(sql)
    parts, done = [], 0
    for before, word in zip([None, *words], words, strict=False):
        # `timestamp '10:30'` is one literal: a column in place of its text would not parse.
        is_text = word.kind == "string" and not (before is not None and before.says(*_NO_COLUMNS))
        if is_text and TIME_OF_DAY.match(lexis.string_value(word.text)):
            parts += [sql[done : word.start], f"`{column}`"]
            done = word.end
    return "".join(parts) + sql[done:]


def _rewritten(sql: str, rewrite: Callable[[_Conversion, str], str]) -> str:
    """Return the expression with each conversion replaced, inner ones first."""
    words, _ = lexis.split(sql)

    def within(start: int, end: int) -> str:
        parts, done = [], start
        for conversion in conversions:
            # Invariant: all before `done` is written; conversions inside of an operand are its recursion's.
            if done <= conversion.start and conversion.end <= end:
                operand = within(conversion.operand.start, conversion.operand.stop)
                parts += [sql[done : conversion.start], rewrite(conversion, operand)]
                done = conversion.end
        return "".join(parts) + sql[done:end]

    conversions = list(_conversions(words))
    return within(0, len(sql)) if conversions else sql


def _conversions(words: Sequence[lexis.Word]) -> Iterator[_Conversion]:
    """Yield the conversions in the order of their starts: an outer one comes before those in its operand."""
    for at, word in enumerate(words[:-1]):
        # A name behind a dot is a field, and no function.
        if not words[at + 1].says("(") or (at and words[at - 1].says(".")):
            continue
        close = _close(words, at + 1)
        last = close - 1
        if word.says("cast", "try_cast") and words[last].says(*TIMESTAMPS) and words[last - 1].says("as"):
            last -= 2
        elif not word.says(*CONVERSIONS) or lexis.comma_in(words[at + 2 : close]) is not None:
            continue
        operand = range(words[at + 2].start, words[last].end)
        tries = word.text.lower().startswith("try_")
        yield _Conversion(word.start, words[close].end, operand, tries)


def _close(words: Sequence[lexis.Word], opening: int) -> int:
    depth = 0
    for at in range(opening, len(words)):
        depth += words[at].says("(", "[") - words[at].says(")", "]")
        if depth == 0:
            return at
    # Not closed: other checks refuse the text, so that the result does not matter.
    return len(words) - 1
