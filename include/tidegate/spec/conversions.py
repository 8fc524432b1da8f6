"""Conversions to timestamps that an expression writes out: each gets a guard against times of day.

Spark reads a text such as '10:30' or 'T10' as that time of the day on which it runs. Literals are refused
when the file is read (`constants`), and expressions in which Spark itself converts a text when they are
computed (`engine.times_of_day`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidegate.spec import lexis
from tidegate.spec.constants import CONVERSIONS, TIME_OF_DAY, TIMESTAMPS

_REFUSAL = "a time of day is no timestamp without a date: Spark would take the day on which it runs"
_NO_COLUMNS = ("interval", "timestamp", "timestamp_ltz", "timestamp_ntz", "date")
"""Words before a text that make it a literal of a type: no column can stand in its place."""


@dataclass(frozen=True)
class _Conversion:
    """A conversion to a timestamp in an expression: where its text is, and where that of its operand.

    `tries`: it gives null for what is no timestamp.
    """

    start: int
    end: int
    operand: range
    tries: bool


def guarded(sql: str) -> str:
    """Return the expression with a guard in each conversion to a timestamp: a time of day fails as a text
    does that is no timestamp, and is null where the conversion gives null for such a text.
    """

    def guard(conversion: _Conversion, operand: str) -> str:
        is_time = f"regexp_like(cast({operand} as string), r'{TIME_OF_DAY.pattern}')"
        refused = "null" if conversion.tries else f"raise_error({_refusal(sql, conversion)})"
        before = sql[conversion.start : conversion.operand.start]
        return f"{before}if({is_time}, {refused}, {operand}){sql[conversion.operand.stop : conversion.end]}"

    return _rewritten(sql, guard)


def _refusal(sql: str, conversion: _Conversion) -> str:
    """What the guard of a conversion says, as a text of SQL."""
    written = sql[conversion.start : conversion.end].replace("\\", "\\\\").replace("'", "\\'")
    return f"'`{written}`: {_REFUSAL}'"


def as_written(fragment: str, expressions: Iterable[str]) -> str:
    """Return the expression, as its file has it, in whose guarded form Spark names a fragment."""
    if _REFUSAL not in fragment and TIME_OF_DAY.pattern not in fragment:
        return fragment
    return next((sql for sql in expressions if fragment in guarded(sql)), fragment)


def without_conversions(sql: str) -> str:
    """Return the expression with other timestamps of the same operands in place of its conversions."""
    return _rewritten(sql, lambda _, operand: f"timestamp_millis(length(cast({operand} as string)))")


def with_constants_as_columns(sql: str, column: str) -> str:
    """Return the expression with a column in place of each text that is a time of day."""
    words, _ = lexis.split(sql)
    parts, done = [], 0
    for before, word in zip([None, *words], words, strict=False):
        is_text = word.kind == "string" and not (before is not None and before.says(*_NO_COLUMNS))
        if is_text and TIME_OF_DAY.match(lexis.string_value(word.text)):
            parts += [sql[done : word.start], f"`{column}`"]
            done = word.end
    return "".join(parts) + sql[done:]


def _rewritten(sql: str, rewrite: Callable[[_Conversion, str], str]) -> str:
    """The expression with each conversion replaced, inner ones first."""
    words, _ = lexis.split(sql)

    def within(start: int, end: int) -> str:
        parts, done = [], start
        for conversion in conversions:
            if done <= conversion.start and conversion.end <= end:
                operand = within(conversion.operand.start, conversion.operand.stop)
                parts += [sql[done : conversion.start], rewrite(conversion, operand)]
                done = conversion.end
        return "".join(parts) + sql[done:end]

    conversions = list(_conversions(words))
    return within(0, len(sql)) if conversions else sql


def _conversions(words: Sequence[lexis.Word]) -> Iterator[_Conversion]:
    """In the order in which they begin, so that an outer one comes before those in its operand."""
    for at, word in enumerate(words[:-1]):
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
    return len(words) - 1


def _has_comma(words: Sequence[lexis.Word]) -> bool:
    """Whether there are several arguments."""
    depth = 0
    for word in words:
        depth += word.says("(", "[") - word.says(")", "]")
        if depth == 0 and word.says(","):
            return True
    return False
