"""The expectations of a suite that are about single rows: `on_failure: quarantine` refuses rows that break
them.

A suite's file is read as JSON, and Great Expectations is not imported. An expectation that tidegate cannot
evaluate exactly as the library does is left to the quality gate, so that no row is refused by a rule that is
nearly the suite's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from tidegate.expressions import Tree
from tidegate.expressions.rows import KEY_KINDS
from tidegate.expressions.types import BIGINT, STRING, ColumnTypes, Type, group
from tidegate.kernel import RowExpectation
from tidegate.kernel.gate import EITHER_MISSING, NULL_TESTS

_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")
_PAIR = ("column_A", "column_B")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}|\.\d{6})?(Z|[+-]\d\d:\d\d)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_WITHOUT_EFFECT = {"batch_id", "catch_exceptions", "result_format", "condition_parser", "meta"}
_WORDS = {"both_values_are_missing", EITHER_MISSING}


@dataclass(frozen=True)
class SuiteRows:
    """A suite's expectations on single rows, and (name, reason) of those for the quality gate."""

    rows: tuple[RowExpectation, ...]
    unsupported: tuple[tuple[str, str], ...]


class _Unsupported(Exception):
    """An expectation cannot be evaluated row by row.

    The message is the reason why the quality gate evaluates it.
    """


def suite_rows(text: str) -> SuiteRows:
    """Parse a suite's file. Raises ValueError if it is not JSON, or not a suite.

    Example: `suite_rows('{"expectations": []}')` is `SuiteRows((), ())`.
    """
    suite = json.loads(text)
    listed = suite.get("expectations") if isinstance(suite, dict) else None
    if not isinstance(listed, list) or not all(isinstance(written, dict) for written in listed):
        raise ValueError("it has no list of `expectations`")
    rows, unsupported = [], []
    for written in listed:
        try:
            rows.append(_row_expectation(written))
        except _Unsupported as reason:
            unsupported.append((str(written.get("type")), str(reason)))
    return SuiteRows(tuple(rows), tuple(unsupported))


def with_column_types(
    expectation: RowExpectation, values: ColumnTypes, keys: ColumnTypes, windowed: bool
) -> RowExpectation | None:
    """Return the expectation typed for the actual columns.

    Args:
        expectation: An expectation on single rows.
        values: The types of the emitted columns.
        keys: The types of the key's columns.
        windowed: Whether the stage has windows, and so window columns.

    None if a column does not exist or has a type that cannot be compared: then the quality gate evaluates it.
    """
    columns = [_column(name, values, keys, windowed) for name in expectation.columns]
    types = [type_ for _, type_ in filter(None, columns)]
    if len(types) < len(columns):
        return None
    options = _FITS[expectation.type](types, expectation.options)
    if options is None:
        return None
    return replace(expectation, options=options, leaves=tuple(tree for tree, _ in filter(None, columns)))


def exact_expectation(type_: str, kwargs: Mapping[str, Any], columns: ColumnTypes) -> RowExpectation | None:
    """Return the expectation for rows with these columns; None if tidegate cannot evaluate it exactly as
    Great Expectations does. `mostly` makes no difference: it is about the share of rows that break it.
    """
    written = {name: value for name, value in kwargs.items() if name != "mostly"}
    try:
        expectation = _row_expectation({"type": type_, "kwargs": written})
    except _Unsupported:
        return None
    return with_column_types(expectation, columns, {}, windowed=False)


# as it is written


def _row_expectation(written: Mapping[str, Any]) -> RowExpectation:
    name, kwargs = written.get("type"), written.get("kwargs")
    if name not in _OPTIONS or not isinstance(kwargs, dict):
        raise _Unsupported("it is not about single rows")
    options = {
        key: value for key, value in kwargs.items() if value is not None and key not in _WITHOUT_EFFECT
    }
    if options.pop("mostly", 1) != 1:
        raise _Unsupported("with `mostly` it is about a share of the rows")
    if "row_condition" in options:
        raise _Unsupported("it has a `row_condition`")
    if written.get("severity", "critical") != "critical":
        raise _Unsupported(f"its severity is {written['severity']}")
    if any(isinstance(value, dict) for value in options.values()):
        raise _Unsupported("it has a parameter of the suite")
    # Great Expectations names the columns of a pair column_A and column_B.
    names = _PAIR if "pair" in name else ("column",)
    columns = tuple(options.pop(argument, None) for argument in names)
    # An unknown argument may change the meaning, so the library itself evaluates it.
    if not all(isinstance(column, str) for column in columns) or set(options) - set(_OPTIONS[name]):
        raise _Unsupported("it has other arguments than are known here")
    return RowExpectation(name, columns, dict(_checked(name, options)))


def _checked(name: str, options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the options as a plan stores them.

    Raises _Unsupported for an option that is not exactly supported.
    """
    if "min_value" in _OPTIONS[name]:
        _check_bounds(options, of_lengths="lengths" in name)
    for required in ("regex", "value_set", "value"):
        if required in _OPTIONS[name] and required not in options:
            raise _Unsupported(f"it has no `{required}`")
    for option, value in options.items():
        yield option, _CHECKS[option](value)


def _check_bounds(options: Mapping[str, Any], of_lengths: bool) -> None:
    bounds = [options[name] for name in ("min_value", "max_value") if name in options]
    if not bounds:
        raise _Unsupported("it has neither `min_value` nor `max_value`")
    if len({isinstance(bound, str) for bound in bounds}) > 1 or (len(bounds) == 2 and bounds[0] > bounds[1]):
        raise _Unsupported("no value is between its bounds")
    if of_lengths and not all(_is_number(bound) and float(bound).is_integer() for bound in bounds):
        raise _Unsupported("a length has no fraction")


def _bound(value: Any) -> Any:
    """Return a bound: a number as a double, as in the library; a day or an instant with a zone as text."""
    if _is_number(value):
        return float(value)
    if isinstance(value, str) and (_INSTANT.fullmatch(value) or _DAY.fullmatch(value)):
        return value
    raise _Unsupported("a bound is neither a number, nor a day, nor an instant with a zone")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _Unsupported("what is true or false is neither")


def _values(written: Any) -> tuple[Any, ...]:
    values = [value for value in written if value is not None] if isinstance(written, list) else [None]
    if not all(isinstance(value, (str, bool)) or _is_number(value) for value in values):
        raise _Unsupported("its `value_set` is not a list of numbers, texts or booleans")
    return tuple(values)


def _pattern(written: Any) -> str:
    try:
        # Python's patterns, not Java's: Great Expectations tests with Python's `re` here.
        return str(re.compile(written).pattern)
    except (re.error, TypeError, OverflowError):
        raise _Unsupported("its `regex` is none that Python reads") from None


def _length(value: Any) -> Any:
    if _is_number(value):
        return value
    raise _Unsupported("its `value` is no number")


def _word(value: Any) -> str:
    if value in _WORDS:
        return str(value)
    raise _Unsupported(f"its `ignore_row_if` is {value}")


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
"""Expectation on single rows -> its arguments beside the columns."""


# over types


def _column(name: str, values: ColumnTypes, keys: ColumnTypes, windowed: bool) -> tuple[Tree, Type] | None:
    """Return the column of a suite: an emitted one, then of the key, then of every outbox."""
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
"""Returns the options converted for these types of columns; None if they do not fit together."""


def _any(types: list[Type], options: Options) -> Options | None:
    return options


def _text(types: list[Type], options: Options) -> Options | None:
    return options if types[0].kind == "string" else None


def _bounds(types: list[Type], options: Options) -> Options | None:
    """Convert bounds: numbers for numbers, days for dates, and instants with a zone for timestamps."""
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
    """Return the options if all members of the set are of the column's kind."""
    kinds = {
        "boolean" if isinstance(x, bool) else "string" if isinstance(x, str) else "number"
        for x in options["value_set"]
    }
    return options if kinds <= {group(types[0])} else None


def _pair(kinds: frozenset[str]) -> Fit:
    def fit(types: list[Type], options: Options) -> Options | None:
        unsupported, right = map(group, types)
        return options if unsupported == right and unsupported in kinds else None

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
