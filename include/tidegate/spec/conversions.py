"""Explicit conversions to timestamps in an expression: each gets a guard against times of day.

Spark reads a text such as '10:30' or 'T10' as that time of the day on which it runs. Literals are refused
when the file is read (`constants`). Expressions in which Spark converts a text implicitly are refused when
they are computed (`engine.times_of_day`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidegate.spec import lexis
from tidegate.spec.constants import CONVERSIONS, TIME_OF_DAY, TIMESTAMPS

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

    `engine.times_of_day` then asks Spark whether it still converts a text implicitly.

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
        elif not word.says(*CONVERSIONS) or _has_comma(words[at + 2 : close]):
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


def _has_comma(words: Sequence[lexis.Word]) -> bool:
    """Return whether the words have a comma outside of brackets: then a call has several arguments."""
    depth = 0
    for word in words:
        depth += word.says("(", "[") - word.says(")", "]")
        if depth == 0 and word.says(","):
            return True
    return False
