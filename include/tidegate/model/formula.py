"""The columns of `reduce: {name: …}`: an aggregate each, or an expression over aggregates, such as
`sum(price) / count(*)`.

The aggregates in an expression are columns of its tree. Those that are no column of the file have names that
are made of their texts: state stores each of them once, and edits of the expression around them change no
state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from tidegate.expressions import Tree
from tidegate.expressions.types import NULL, ColumnTypes, Type
from tidegate.expressions.typing import typed_expression
from tidegate.kernel import Aggregate, Aggregates, Formula
from tidegate.kernel.aggregates.python import PythonAggregate
from tidegate.model import lexis
from tidegate.model.aggregates import NAMES, closing, no_aggregate, other_name, parse_aggregate, result_type
from tidegate.model.condition import parse_expression
from tidegate.model.mistakes import Fault
from tidegate.model.names import quote
from tidegate.model.sql import check_expression, parse, path_of

Names = Mapping[str, str]
"""The name of an aggregate by its text -> the file's column that has it."""
_DIGITS = 8
"""The digits of the hash in the name of an aggregate that is no column of the file."""


class ColumnText(NamedTuple):
    """The text of a column as it is read: its aggregates, and the expression over them."""

    aggregates: tuple[Aggregate, ...] = ()
    tree: Tree = ()

    @property
    def is_aggregate(self) -> bool:
        """Whether the column is the result of an aggregate."""
        return len(self.aggregates) == 1 and self.tree == ("column", self.aggregates[0].name)


def parse_column(
    text: str | PythonAggregate, columns: ColumnTypes | None, names: Names | None = None
) -> tuple[ColumnText, list[Fault]]:
    """Parse the text of a column. Returns it, and all faults.

    Args:
        text: An aggregate, also one in Python, or an expression over aggregates and constants.
        columns: The columns of the records; None if they could not be read.
        names: The names of aggregates that are columns of the file.

    Example: the tree of `sum(x) / 2` is `("/", ("column", "_sum_1a2b3c4d"), ("literal", 2))`.
    """
    if isinstance(text, PythonAggregate):
        part = _named(_in_python(text, columns), names or {})
        return ColumnText((part,), ("column", part.name)), []
    words, faults = lexis.split(text)
    calls = [*_calls(words)]
    if faults or not (calls or _is_constant(words)):
        return ColumnText(), faults or [no_aggregate(words)]
    within = {at for first, last in calls for at in range(first, last + 1)}
    misnamed = other_name([word for at, word in enumerate(words) if at not in within])
    if misnamed is not None:
        return ColumnText(), [misnamed]
    aggregates, rest, done = [], "", 0
    for first, last in calls:
        call, mistakes = parse_aggregate(text[words[first].start : words[last].end], columns)
        faults += mistakes
        aggregates.append(_named(Aggregate("", *call), names or {}))
        rest += f"{text[done : words[first].start]}`{aggregates[-1].name}`"
        done = words[last].end
    rest += text[done:]
    if faults:
        return ColumnText(), faults
    tree, faults = _parse_rest(rest, {part.name: result_type(part, columns) for part in aggregates})
    return ColumnText(tuple(aggregates), tree), faults


def _in_python(aggregate: PythonAggregate, columns: ColumnTypes | None) -> Aggregate:
    argument = aggregate.argument
    if argument is None:
        argument = f"struct({', '.join(map(quote, columns or ()))})"
    return Aggregate("", "python", argument, python=aggregate)


def parsed_aggregates(texts: Mapping[str, str | PythonAggregate], columns: ColumnTypes | None) -> Aggregates:
    """Return the aggregates of columns without mistakes, each aggregate once.

    Args:
        texts: ColumnText -> its text.
        columns: The columns of the records; None if they could not be read.
    """
    first = _parsed(texts, columns, {})
    single = {name: column.aggregates[0] for name, column in first if column.is_aggregate}
    own = tuple(replace(aggregate, name=name) for name, aggregate in single.items())
    if len(own) == len(texts):
        return Aggregates(own)
    # Of two columns with the same aggregate, the first counts.
    names = {aggregate.name: name for name, aggregate in reversed(single.items())}
    parsed = dict(_parsed(texts, columns, names))
    parts = {part.name: part for column in parsed.values() for part in column.aggregates}
    formulas = [
        Formula(name, _shown(texts[name]), ("column", name) if name in single else column.tree)
        for name, column in parsed.items()
    ]
    return Aggregates((*own, *(part for name, part in parts.items() if name not in single)), tuple(formulas))


def with_members(reduce: Aggregates) -> Aggregates:
    """Return the aggregates for a stage that retracts, with the one that counts the rows of a group."""
    counting = [aggregate for aggregate in reduce if aggregate.text == "count(*)"]
    members = counting[0] if counting else _named(Aggregate("", "count"), {})
    if counting:
        return replace(reduce, members=members.name)
    shown = tuple(Formula(aggregate.name, aggregate.text, ("column", aggregate.name)) for aggregate in reduce)
    return Aggregates((*reduce, members), reduce.formulas or shown, members.name)


def result_types(reduce: Aggregates, columns: ColumnTypes | None) -> dict[str, Type | None]:
    """Return the types of the emitted columns; None if only Spark can tell a type."""
    types = {aggregate.name: result_type(aggregate, columns) for aggregate in reduce}
    if not reduce.formulas:
        return types
    return {formula.name: typed_expression(formula.tree, types, {})[0].type for formula in reduce.formulas}


def _shown(written: str | PythonAggregate) -> str:
    return written.strip() if isinstance(written, str) else written.text


def _parsed(
    texts: Mapping[str, str | PythonAggregate], columns: ColumnTypes | None, names: Names
) -> Iterator[tuple[str, ColumnText]]:
    for name, text in texts.items():
        yield name, parse_column(text, columns, names)[0]


def _calls(words: list[lexis.Word]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last word of each outermost aggregate, with what belongs to it behind it."""
    at = 0
    while at < len(words) - 1:
        is_call = words[at].text.lower() in NAMES and words[at + 1].says("(")
        size = closing(words[at:]) if is_call else None
        if size is not None:
            end = at + size
            behind = words[end + 1 :]
            if behind and behind[0].says("over"):
                end = len(words) - 1
            elif behind and behind[0].says("filter"):
                end += 1 + (closing(behind) or 0)
            yield at, end
            at = end
        at += 1


def _is_constant(words: list[lexis.Word]) -> bool:
    values = [word for word in words if word.kind == "string" or word.text[:1].isdigit()]
    return bool(values) and all(word in values or word.says("-", ".") for word in words)


def _named(aggregate: Aggregate, names: Names) -> Aggregate:
    """Return the aggregate with its name: that of its column, or one that is made of its text."""
    words = " ".join(word.text for word in lexis.split(aggregate.text)[0])
    digest = hashlib.sha256(words.encode()).hexdigest()[:_DIGITS]
    name = f"_{aggregate.function}_{digest}"
    return replace(aggregate, name=names.get(name, name))


def _parse_rest(text: str, results: ColumnTypes) -> tuple[Tree, list[Fault]]:
    """Parse an expression in which each aggregate is a column. Returns its tree, and all faults."""
    if lexis.comma_in(lexis.split(text)[0]) is not None:
        return (), [Fault("there is `,` behind the aggregate", "Write one aggregate, or one expression.")]
    if faults := check_expression(text, None):
        return (), faults
    paths = [path_of(column) for column in parse(text).find_all(exp.Column)]
    if outside := [".".join(path) for path in paths if path[0] not in results]:
        fix = f"Write `last({outside[0]})`, or another aggregate of it."
        return (), [Fault(f"`{outside[0]}` stands outside of an aggregate", fix)]
    typed, faults = parse_expression(text, results)
    if not faults and typed.type == NULL:
        faults = [Fault("it is always null", "Leave it out.")]
    return typed.tree, [_of_formula(fault) for fault in faults]


def _of_formula(fault: Fault) -> Fault:
    what = "an expression over aggregates"
    fix = fault.fix.replace("It is tested between records, by tidegate itself.", f"Tidegate computes {what}.")
    return Fault(fault.message.replace("a condition", what), fix)
