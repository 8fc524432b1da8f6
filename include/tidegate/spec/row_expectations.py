"""Which expectations of a suite are about single rows: `on_failure: quarantine` refuses what breaks them.

A suite's file is read as JSON; Great Expectations is not imported. What is not here exactly as the library
means it is left to the quality gate: nothing is refused by a rule that is only nearly the suite's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from tidegate.core import RowExpectation
from tidegate.core.condition import Tree
from tidegate.core.condition.compiler import KEY_KINDS
from tidegate.core.expectation import EITHER_MISSING, NULL_TESTS
from tidegate.spec.columns import Type
from tidegate.spec.constants import Known
from tidegate.spec.kinds import BIGINT, STRING, group

_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")
_PAIR = ("column_A", "column_B")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?(Z|[+-]\d\d:\d\d)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_WITHOUT_EFFECT = {"batch_id", "catch_exceptions", "result_format", "condition_parser", "meta"}
_WORDS = {"both_values_are_missing", EITHER_MISSING}


@dataclass(frozen=True)
class SuiteRows:
    """A suite's expectations: those about single rows, and of the others the names, each with the reason why
    it is left to the quality gate."""

    rows: tuple[RowExpectation, ...]
    left: tuple[tuple[str, str], ...]


class _Left(Exception):
    """Why an expectation is left to the quality gate."""


def suite_rows(text: str) -> SuiteRows:
    """What a suite's file has. Raises ValueError where it is no JSON, or no suite."""
    suite = json.loads(text)
    listed = suite.get("expectations") if isinstance(suite, dict) else None
    if not isinstance(listed, list) or not all(isinstance(written, dict) for written in listed):
        raise ValueError("it has no list of `expectations`")
    rows, left = [], []
    for written in listed:
        try:
            rows.append(_row_expectation(written))
        except _Left as reason:
            left.append((str(written.get("type")), str(reason)))
    return SuiteRows(tuple(rows), tuple(left))


def over_columns(
    expectation: RowExpectation, values: Known, keys: Known, windowed: bool
) -> RowExpectation | None:
    """The expectation over the types that emitted and key columns really have.

    None: it is left to the quality gate, since it has no column of that name, or of a type that it compares.
    """
    columns = [_column(name, values, keys, windowed) for name in expectation.columns]
    types = [type_ for _, type_ in filter(None, columns)]
    if len(types) < len(columns):
        return None
    options = _FITS[expectation.type](types, expectation.options)
    if options is None:
        return None
    return replace(expectation, options=options, leaves=tuple(tree for tree, _ in filter(None, columns)))


# as it is written


def _row_expectation(written: Mapping[str, Any]) -> RowExpectation:
    name, kwargs = written.get("type"), written.get("kwargs")
    if name not in _OPTIONS or not isinstance(kwargs, dict):
        raise _Left("it is not about single rows")
    options = {
        key: value for key, value in kwargs.items() if value is not None and key not in _WITHOUT_EFFECT
    }
    if options.pop("mostly", 1) != 1:
        raise _Left("with `mostly` it is about a share of the rows")
    if "row_condition" in options:
        raise _Left("it has a `row_condition`")
    if written.get("severity", "critical") != "critical":
        raise _Left(f"its severity is {written['severity']}")
    if any(isinstance(value, dict) for value in options.values()):
        raise _Left("it has a parameter of the suite")
    names = _PAIR if "pair" in name else ("column",)
    columns = tuple(options.pop(each, None) for each in names)
    if not all(isinstance(column, str) for column in columns) or set(options) - set(_OPTIONS[name]):
        raise _Left("it has other arguments than are known here")
    return RowExpectation(name, columns, dict(_checked(name, options)))


def _checked(name: str, options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The options, as a plan keeps them."""
    if "min_value" in _OPTIONS[name]:
        _check_bounds(options, of_lengths="lengths" in name)
    for required in ("regex", "value_set", "value"):
        if required in _OPTIONS[name] and required not in options:
            raise _Left(f"it has no `{required}`")
    for option, value in options.items():
        yield option, _CHECKS[option](value)


def _check_bounds(options: Mapping[str, Any], of_lengths: bool) -> None:
    bounds = [options[name] for name in ("min_value", "max_value") if name in options]
    if not bounds:
        raise _Left("it has neither `min_value` nor `max_value`")
    if len({isinstance(bound, str) for bound in bounds}) > 1 or (len(bounds) == 2 and bounds[0] > bounds[1]):
        raise _Left("no value is between its bounds")
    if of_lengths and not all(_is_number(bound) and float(bound).is_integer() for bound in bounds):
        raise _Left("a length has no fraction")


def _bound(value: Any) -> Any:
    """A number is a double, as the library has it; a day or an instant with its zone is a text."""
    if _is_number(value):
        return float(value)
    if isinstance(value, str) and (_INSTANT.fullmatch(value) or _DAY.fullmatch(value)):
        return value
    raise _Left("a bound is neither a number, nor a day, nor an instant with a zone")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _Left("what is true or false is neither")


def _values(written: Any) -> tuple[Any, ...]:
    values = [value for value in written if value is not None] if isinstance(written, list) else [None]
    if not all(isinstance(value, (str, bool)) or _is_number(value) for value in values):
        raise _Left("its `value_set` is not a list of numbers, texts or booleans")
    return tuple(values)


def _pattern(written: Any) -> str:
    try:
        return str(re.compile(written).pattern)
    except (re.error, TypeError, OverflowError):
        raise _Left("its `regex` is none that Python reads") from None


def _length(value: Any) -> Any:
    if _is_number(value):
        return value
    raise _Left("its `value` is no number")


def _word(value: Any) -> str:
    if value in _WORDS:
        return str(value)
    raise _Left(f"its `ignore_row_if` is {value}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("min_value", "max_value"), _bound),
    **dict.fromkeys(("strict_min", "strict_max", "or_equal"), _flag),
    "value_set": _values,
    "regex": _pattern,
    "value": _length,
    "ignore_row_if": _word,
}

_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(NULL_TESTS, ()),
    "expect_column_values_to_be_between": _BOUNDS,
    "expect_column_values_to_be_in_set": ("value_set",),
    "expect_column_values_to_not_be_in_set": ("value_set",),
    "expect_column_values_to_match_regex": ("regex",),
    "expect_column_values_to_not_match_regex": ("regex",),
    "expect_column_value_lengths_to_be_between": _BOUNDS,
    "expect_column_value_lengths_to_equal": ("value",),
    "expect_column_pair_values_to_be_equal": ("ignore_row_if",),
    "expect_column_pair_values_a_to_be_greater_than_b": ("ignore_row_if", "or_equal"),
}
"""Those about single rows, and the arguments of each beside its columns."""


# over types


def _column(name: str, values: Known, keys: Known, windowed: bool) -> tuple[Tree, Type] | None:
    """As a suite finds a column: among the emitted ones, then the key's, then what every outbox has."""
    if (type_ := values.get(name)) is not None:
        return ("column", name), type_
    if (type_ := keys.get(name)) is not None:
        kind = type_.kind
        return (("key", name if len(keys) > 1 else None, kind), type_) if kind in KEY_KINDS else None
    if name == "key":
        return ("key", None, "string"), STRING
    return (("column", name), BIGINT) if windowed and name in ("window_start", "window_end") else None


Options = Mapping[str, Any]
Fit = Callable[[list[Type], Options], "Options | None"]
"""The options over these types of columns; None: they do not go together."""


def _any(types: list[Type], options: Options) -> Options | None:
    return options


def _text(types: list[Type], options: Options) -> Options | None:
    return options if types[0].kind == "string" else None


def _bounds(types: list[Type], options: Options) -> Options | None:
    """Numbers for numbers, days for dates, and instants with a zone for timestamps."""
    bounds = {name: options[name] for name in ("min_value", "max_value") if name in options}
    if all(isinstance(bound, float) for bound in bounds.values()):
        return options if group(types[0]) == "number" else None
    if types[0].kind == "timestamp" and all(map(_INSTANT.fullmatch, bounds.values())):
        instants = {name: bound.replace("Z", "+00:00") for name, bound in bounds.items()}
        return {**options, **{name: datetime.fromisoformat(bound) for name, bound in instants.items()}}
    if types[0].kind == "date" and all(map(_DAY.fullmatch, bounds.values())):
        return {**options, **{name: date.fromisoformat(bound) for name, bound in bounds.items()}}
    return None


def _alike(types: list[Type], options: Options) -> Options | None:
    """All members of the set are of the column's kind."""
    kinds = {
        "boolean" if isinstance(x, bool) else "string" if isinstance(x, str) else "number"
        for x in options["value_set"]
    }
    return options if kinds <= {group(types[0])} else None


def _pair(kinds: frozenset[str]) -> Fit:
    def fit(types: list[Type], options: Options) -> Options | None:
        left, right = map(group, types)
        return options if left == right and left in kinds else None

    return fit


_ORDERED = frozenset({"number", "string", "timestamp", "timestamp_ntz", "date"})
_FITS: dict[str, Fit] = {
    **dict.fromkeys(NULL_TESTS, _any),
    "expect_column_values_to_be_between": _bounds,
    "expect_column_values_to_be_in_set": _alike,
    "expect_column_values_to_not_be_in_set": _alike,
    "expect_column_values_to_match_regex": _text,
    "expect_column_values_to_not_match_regex": _text,
    "expect_column_value_lengths_to_be_between": _text,
    "expect_column_value_lengths_to_equal": _text,
    "expect_column_pair_values_to_be_equal": _pair(_ORDERED | {"boolean"}),
    "expect_column_pair_values_a_to_be_greater_than_b": _pair(_ORDERED),
}
