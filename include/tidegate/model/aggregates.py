"""Aggregates as a pipeline file has them, such as `sum(quantity) filter (where quantity > 0)`."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from tidegate.expressions.arrow import arrow_type, type_of
from tidegate.expressions.types import ANY, BIGINT, DOUBLE, ColumnTypes, Type, group
from tidegate.kernel import Aggregate
from tidegate.kernel.aggregates import DISTINCT, FUNCTIONS
from tidegate.kernel.aggregates.function import BY, CHOSEN
from tidegate.model import lexis
from tidegate.model.condition import expression_type, type_of_no_condition
from tidegate.model.mistakes import Fault, did_you_mean, listed
from tidegate.model.sql import check_expression

NAMES = tuple(name for name in FUNCTIONS if name != DISTINCT)
"""The names of aggregate functions in a file."""
_EXAMPLE = f"Write `count(*)`, or one of {listed(NAMES)} of one expression: `sum(quantity)`."
_REFUSED = {
    "over": Fault("`over` is not used here", "Leave it out: aggregates are per key, and per `window:`.")
}
_DISTINCT = Fault("`distinct` is not used here", "Use `count(distinct x)`, or `collect_set(x)`.")
_FILTER = "Write `sum(x) filter (where x > 0)`."
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_BY = "Write `min_by(price, at)`, which is the price with the least `at`."
_OTHER_NAMES = {
    "mean": "`avg(x)`",
    **dict.fromkeys(("any_value", "first_value"), "`first(x)`"),
    "last_value": "`last(x)`",
    "every": "`bool_and(x)`",
    **dict.fromkeys(("any", "some"), "`bool_or(x)`"),
    "count_if": "`count(*) filter (where x)`",
    **dict.fromkeys(("array_agg", "list"), "`collect_list(x)`"),
    "arg_min": "`min_by(x, y)`",
    "arg_max": "`max_by(x, y)`",
    **dict.fromkeys(
        ("approx_percentile", "percentile_approx", "percentile_cont", "quantile", "quantile_cont"),
        "`percentile(x, 0.95)`",
    ),
    **dict.fromkeys(("std", "stddev_samp"), "`stddev(x)`"),
    "var_samp": "`variance(x)`",
    **dict.fromkeys(("stddev_pop", "var_pop"), "`stddev(x)` or `variance(x)`, which are those of a sample"),
}
"""Aggregates of Spark and other databases that have another name here -> what to write."""

_LISTS = ("collect_list", "collect_set", "top")
_COUNTS = ("count", DISTINCT, "approx_count_distinct")
_DOUBLES = ("median", "percentile", "stddev", "variance")


class Call(NamedTuple):
    """An aggregate as it is written: the function and its arguments; `count(*)` has none.

    Example: `min_by(price, at)` is `Call("min_by", "price", "at")`.
    """

    function: str
    argument: str | None = None
    by: str | None = None
    parameter: int | float | None = None

    def filtered(self, condition: str | None) -> Call:
        """Return the aggregate of those records for which a condition is true."""
        if condition is None:
            return self
        if self.by is not None:
            return self._replace(by=f"case when {condition} then {self.by} end")
        return self._replace(argument=f"case when {condition} then {self.argument or 1} end")


def parse_aggregate(text: str, columns: ColumnTypes | None) -> tuple[Call, list[Fault]]:
    """Parse an aggregate. Returns it, and all faults.

    Example: `parse_aggregate("sum(quantity)", columns)` returns `(Call("sum", "quantity"), [])`.
    """
    words, faults = lexis.split(text)
    if not words:
        return Call(""), faults
    function = words[0].text.lower()
    end = closing(words)
    if function not in NAMES or end is None:
        return Call(""), [no_aggregate(words)]
    condition, behind = _filter(text, words[end + 1 :], columns)
    inside = words[2:end]
    if [word.text for word in inside] == ["*"]:
        return Call(function).filtered(condition), faults + behind + _count_only(function)
    begin, stop, by = words[1].end, words[end].start, None
    if function == "count" and len(inside) > 1 and inside[0].says("distinct"):
        function, begin, inside = DISTINCT, inside[0].end, inside[1:]
    if FUNCTIONS[function].parameter is not None:
        call, mistakes = _with_constant(function, _parts(text, inside, begin, stop), columns)
        return call.filtered(condition), faults + behind + mistakes
    if FUNCTIONS[function].chooses:
        comma = lexis.comma_in(inside)
        if comma is None:
            return Call(function), [*faults, *behind, Fault(f"`{function}` takes two expressions", _BY)]
        by = text[inside[comma].end : stop].strip()
        faults += _argument_faults(inside[comma + 1 :], by, function, columns)
        stop, inside = inside[comma].start, inside[:comma]
    argument = text[begin:stop].strip()
    if by is None:
        faults += behind + _argument_faults(inside, argument, function, columns)
    else:
        faults += behind + check_expression(argument, columns)
    return Call(function, argument, by).filtered(condition), faults


_Part = tuple[list[lexis.Word], str]
"""An argument: its words, and its text."""


def _parts(text: str, inside: list[lexis.Word], begin: int, stop: int) -> list[_Part]:
    """Return the arguments of a call.

    Args:
        text: The text of the call.
        inside: The words between its parentheses.
        begin: The offset of the first argument in the text.
        stop: The offset of the end of the last one.
    """
    comma = lexis.comma_in(inside)
    if comma is None:
        return [(inside, text[begin:stop].strip())]
    first = inside[:comma], text[begin : inside[comma].start].strip()
    return [first, *_parts(text, inside[comma + 1 :], inside[comma].end, stop)]


def _with_constant(
    function: str, parts: list[_Part], columns: ColumnTypes | None
) -> tuple[Call, list[Fault]]:
    """Return a call whose second argument is a constant, and all faults."""
    rule = FUNCTIONS[function]
    assert rule.parameter is not None, "it has a constant"
    if not 2 <= len(parts) <= (3 if rule.chooses else 2):
        what = f"`{function}` takes {'2 or 3' if rule.chooses else '2'} arguments, not {len(parts)}"
        return Call(function), [Fault(what, rule.parameter.fix)]
    argument, constant, *by = parts
    number = _NUMBER.fullmatch(constant[1])
    value = None if number is None else float(constant[1]) if number[1] else int(constant[1])
    faults: list[Fault] = []
    if value is None or not rule.parameter.accepts(value):
        faults.append(Fault(f"`{constant[1]}` is no constant of `{function}`", rule.parameter.fix))
    compared = by[0] if by else argument
    faults += _argument_faults(*compared, function, columns)
    if by:
        faults += check_expression(argument[1], columns)
    return Call(function, argument[1], by[0][1] if by else None, value), faults


def _filter(
    text: str, words: list[lexis.Word], columns: ColumnTypes | None
) -> tuple[str | None, list[Fault]]:
    """Return the condition of `filter (where …)` or None, and the faults of what is there."""
    if not words:
        return None, []
    if not words[0].says("filter"):
        return None, [_after(words)]
    if len(words) < 5 or not (words[1].says("(") and words[2].says("where")):
        return None, [Fault("`filter` has no condition", _FILTER)]
    if closing(words) != len(words) - 1:
        return None, [Fault("there is more behind `filter`", _FILTER)]
    condition = text[words[2].end : words[-1].start].strip()
    if faults := check_expression(condition, columns):
        return None, faults
    if type_ := type_of_no_condition(condition, columns):
        return None, [Fault(f"the condition of `filter` is {type_.text}, neither true nor false", _FILTER)]
    return f"({condition})", []


def closing(words: list[lexis.Word]) -> int | None:
    """Return the position of the parenthesis that closes the first call; None without one."""
    depth = 0
    for at, word in enumerate(words[1:], start=1):
        depth += word.says("(") - word.says(")")
        if depth == 0:
            # At position 1 it closes nothing: the text is not a call.
            return at if at > 1 else None
    return None


def no_aggregate(words: list[lexis.Word]) -> Fault:
    """Return the fault of a text without an aggregate. It names the innermost call: functions that are no
    aggregates may be around it.
    """
    if (fault := other_name(words)) is not None:
        return fault
    calls = [word.text.lower() for word, opening in pairwise(words) if opening.says("(")]
    calls = [name for name in calls if name.strip("'\"`").isidentifier()]
    if DISTINCT in calls:
        return _unusable(DISTINCT, "Write `count(distinct x)`.")
    if calls and calls[-1] not in NAMES:
        return _unusable(calls[-1], did_you_mean(calls[-1], NAMES, _EXAMPLE))
    return Fault("it is not an aggregate", _EXAMPLE)


def other_name(words: list[lexis.Word]) -> Fault | None:
    """Return the fault of a call of an aggregate that has another name here; None without one."""
    for word, opening in pairwise(words):
        name = word.text.lower()
        if name in _OTHER_NAMES and opening.says("("):
            return _unusable(name, f"Write {_OTHER_NAMES[name]}.")
    return None


def _unusable(name: str, fix: str) -> Fault:
    return Fault(f"`{name}` is not an aggregate that can be used", fix)


def _after(words: list[lexis.Word]) -> Fault:
    otherwise = Fault(
        f"there is `{words[0].text}` behind the aggregate",
        "Write one aggregate; compute with its result in a later stage's `select`.",
    )
    return _REFUSED.get(words[0].text.lower(), otherwise)


def _count_only(function: str) -> list[Fault]:
    return (
        []
        if function == "count"
        else [Fault(f"`{function}(*)` has no argument", f"Write `{function}(quantity)`.")]
    )


def _argument_faults(
    inside: list[lexis.Word], argument: str, function: str, columns: ColumnTypes | None
) -> list[Fault]:
    if not inside:
        return [Fault(f"`{function}()` has no argument", _EXAMPLE)]
    # A single word may be a column with that name.
    if len(inside) > 1 and inside[0].says("distinct", "all"):
        return [_DISTINCT]
    if lexis.comma_in(inside) is not None:
        return [_too_many(function)]
    # An expression over one record, as in `select`: Spark computes it before the shuffle.
    if faults := check_expression(argument, columns):
        return faults
    type_ = expression_type(argument, columns)
    takes = FUNCTIONS[function].takes
    if takes == "numbers" and group(type_) not in ("number", None):
        fix = "Give it a number, such as `cast(x as double)` or `if(x, 1, 0)`."
        return [Fault(f"`{function}` takes numbers, not {type_ and type_.text}", fix)]
    if takes == "booleans" and group(type_) not in ("boolean", None):
        fix = f"Write a condition: `{function}(quantity > 0)`."
        return [Fault(f"`{function}` takes true or false, not {type_ and type_.text}", fix)]
    if takes == "single values" and group(type_) == "nested":
        return [Fault(f"`{function}` takes single values, not {type_ and type_.text}", "Give it one field.")]
    return []


def _too_many(function: str) -> Fault:
    if FUNCTIONS[function].chooses:
        return Fault(f"`{function}` takes two expressions", _BY)
    if function == DISTINCT:
        fix = "Write `count(distinct struct(x, y))`."
        return Fault("`count(distinct …)` takes one expression", fix)
    return Fault(f"`{function}` takes one expression", "Keep the first. Nulls are always ignored.")


def argument_type(aggregate: Aggregate, columns: ColumnTypes | None) -> Type | None:
    """Return the type of the record column that an aggregate folds; None if only Spark can tell it."""
    if aggregate.python is not None or not FUNCTIONS[aggregate.function].chooses:
        return expression_type(aggregate.computed, columns)
    chosen, by = aggregate.argument or "", aggregate.by or aggregate.argument or ""
    types = [expression_type(text, columns) for text in (chosen, by)]
    if any(type_ is None or not type_.is_known for type_ in types):
        return None
    fields = tuple(zip((CHOSEN, BY), (type_ for type_ in types if type_), strict=True))
    text = ",".join(f"{name}:{type_.text}" for name, type_ in fields)
    return Type(f"struct<{text}>", "struct", fields)


def result_type(aggregate: Aggregate, columns: ColumnTypes | None) -> Type | None:
    """Return the type of an aggregate's result; None if only Spark can tell it.

    Example: that of `Aggregate("n", "count")` is `BIGINT`.
    """
    if aggregate.python is not None:
        return aggregate.python.type
    function, argument = aggregate.function, aggregate.argument
    type_ = expression_type(argument, columns) if argument is not None else BIGINT
    if function in _LISTS:
        element = type_ or ANY
        return Type(f"array<{element.text}>", "array", parts=(element,))
    if function in _COUNTS or function in _DOUBLES:
        return BIGINT if function in _COUNTS else DOUBLE
    if type_ is None or not type_.is_known or FUNCTIONS[function].chooses:
        return type_
    return type_of(FUNCTIONS[function].result_type(pa.field(function, arrow_type(type_))))
