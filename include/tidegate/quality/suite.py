"""Parse the file of a suite without Great Expectations: its expectations and their severities.

The file is the one that the API of Great Expectations writes. What only its classes know, such as whether a
bound is a number, is checked when the suite is evaluated. Conditions and schemas that would run code or
fetch documents are refused: Great Expectations passes a condition for pandas to `DataFrame.query`, which can
use the names of the calling module, and so run any command. Condition objects, as its API writes them, only
compare a column with values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import SettingsInvalid
from tidegate.formats.decoded import Explained
from tidegate.model.mistakes import did_you_mean

CORE_TYPES = frozenset(
    {
        "expect_column_distinct_values_to_be_in_set",
        "expect_column_distinct_values_to_contain_set",
        "expect_column_distinct_values_to_equal_set",
        "expect_column_kl_divergence_to_be_less_than",
        "expect_column_max_to_be_between",
        "expect_column_mean_to_be_between",
        "expect_column_median_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_most_common_value_to_be_in_set",
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_to_be_in_set",
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_quantile_values_to_be_between",
        "expect_column_stdev_to_be_between",
        "expect_column_sum_to_be_between",
        "expect_column_to_exist",
        "expect_column_type_to_be",
        "expect_column_unique_value_count_to_be_between",
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_value_z_scores_to_be_less_than",
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_dateutil_parseable",
        "expect_column_values_to_be_decreasing",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_be_in_type_list",
        "expect_column_values_to_be_increasing",
        "expect_column_values_to_be_json_parseable",
        "expect_column_values_to_be_null",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_unique",
        "expect_column_values_to_match_json_schema",
        "expect_column_values_to_match_like_pattern",
        "expect_column_values_to_match_like_pattern_list",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_match_regex_list",
        "expect_column_values_to_match_strftime_format",
        "expect_column_values_to_not_be_in_set",
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_not_be_outliers",
        "expect_column_values_to_not_match_like_pattern",
        "expect_column_values_to_not_match_like_pattern_list",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_not_match_regex_list",
        "expect_compound_columns_to_be_unique",
        "expect_multicolumn_sum_to_equal",
        "expect_multicolumn_values_to_be_equal",
        "expect_query_results_to_match_comparison",
        "expect_select_column_values_to_be_unique_within_record",
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
        "expect_table_row_count_to_equal_other_table",
        "unexpected_rows_expectation",
    }
)
"""The types, so that a suite can be parsed without importing Great Expectations. A test compares them with
its registry.
"""
_SAFE_PARSERS = ("great_expectations", "great_expectations__experimental__")
"""Parsers that have their own grammar, such as `col("price") > 1`, and run no code."""
_COMBINED = ("and", "or")
_SCALARS = (str, int, float, bool, type(None))
PARAMETER = "$PARAMETER"
"""The key of an object that stands for a value from the suite's parameters."""


def check_condition(place: str, kwargs: Mapping[str, Any]) -> None:
    """Check the `row_condition` of an expectation. `place` names the expectation in errors.

    Raises SettingsInvalid if pandas would run the condition as code.
    """
    for reason in _faults(kwargs.get("row_condition"), kwargs.get("condition_parser")):
        raise SettingsInvalid(
            f"{place} has a `row_condition` that would be run as code: {reason}",
            'Write a condition object, as the API of Great Expectations does: {"type": "comparison", '
            '"column": {"name": "price"}, "operator": ">", "parameter": 1}; or `col("price") > 1` with '
            '"condition_parser": "great_expectations".',
        )


def _faults(condition: Any, parser: Any) -> Iterator[str]:
    if isinstance(condition, str):
        if parser not in _SAFE_PARSERS:
            yield f"its parser is {parser!r}"
        # pandas reads a backtick as the quote of a column, and @ as a Python variable
        elif "`" in condition or "@" in condition:
            yield "it contains a backtick or an @"
    elif isinstance(condition, dict):
        yield from _faults_of_object(condition)
    elif condition is not None:
        yield f"it is a {type(condition).__name__}"


def _faults_of_object(condition: Mapping[str, Any]) -> Iterator[str]:
    type_ = condition.get("type")
    if type_ in _COMBINED:
        parts = condition.get("conditions")
        for part in parts if isinstance(parts, list) else [None]:
            yield from (
                _faults_of_object(part) if isinstance(part, dict) else ["a part of it is not an object"]
            )
        return
    if type_ not in ("comparison", "nullity"):
        yield f"its type is {type_!r}"
        return
    column = condition.get("column")
    name = column.get("name") if isinstance(column, dict) else column
    # pandas quotes a column's name in backticks, so that a backtick in it would end the name
    if not isinstance(name, str) or "`" in name or "@" in name:
        yield f"its column is {name!r}"
    values = condition.get("parameter")
    for value in values if isinstance(values, list) else [values]:
        if not isinstance(value, _SCALARS):
            yield f"it compares with {value!r}"  # a list or an object could contain an expression


def check_json_schema(place: str, schema: Any) -> None:
    """Check that a JSON Schema is complete in itself.

    Raises SettingsInvalid if it refers to another document, which the validator would fetch from the network.
    """
    for reference in _references(schema):
        if not (isinstance(reference, str) and reference.startswith("#")):
            raise SettingsInvalid(
                f"{place} has a `json_schema` that refers to another document: {reference!r}",
                "Write that part into the schema, below `$defs`, and refer to it as `#/$defs/name`.",
            )


def _references(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        yield from (schema[name] for name in ("$ref", "$dynamicRef", "$recursiveRef") if name in schema)
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


class Severity(Explained):
    """The severity of an expectation that is not met, the worst first."""

    CRITICAL = "critical", "The batch stops before anything is visible."
    WARNING = "warning", "The batch continues, and the failure is reported."
    INFO = "info", "The failure is recorded."

    def __str__(self) -> str:
        return str.__str__(self)


@dataclass(frozen=True)
class ExpectationSpec:
    """An expectation as the file has it. `number` is its place there, from 1 on."""

    number: int
    type: str
    kwargs: Mapping[str, Any]
    severity: Severity
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the expectation names; empty if it applies to the whole table."""
        single = (self.kwargs.get(name) for name in ("column", "column_A", "column_B"))
        several = self.kwargs.get("column_list") or ()
        return tuple(str(name) for name in (*single, *several) if isinstance(name, str))

    @property
    def parameters(self) -> frozenset[str]:
        """The texts of the parameters that the expectation uses, such as `previous_rows * 0.5`."""
        return frozenset(_parameters(self.kwargs))


@dataclass(frozen=True)
class Suite:
    """A suite. `parameters` has the values that the file itself gives: name -> value."""

    name: str
    expectations: tuple[ExpectationSpec, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)


def parse_suite(
    text: str, place: str, default: Severity = Severity.CRITICAL, additional_types: Iterable[str] | None = ()
) -> Suite:
    """Parse a suite.

    Args:
        place: How errors name the text, such as a path.
        default: The severity of expectations that have none.
        additional_types: Types that are allowed beside those of Great Expectations; None allows any type.

    Raises SettingsInvalid if the text is not a suite, or has an expectation that is not allowed.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise _not_a_suite(place, f"it is not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("expectations"), list):
        raise _not_a_suite(place, "it is not an object with a list of `expectations`")
    if not isinstance(data.get("name"), str) or not data["name"]:
        raise _not_a_suite(place, "its `name` is missing")
    # any type, where the pipeline names modules: they register their types only when they are imported
    types = None if additional_types is None else CORE_TYPES | set(additional_types)
    expectations = tuple(
        _expectation(number, written, place, default, types)
        for number, written in enumerate(data["expectations"], start=1)
    )
    return Suite(data["name"], expectations, data.get("suite_parameters") or {})


def _expectation(
    number: int, written: Any, place: str, default: Severity, types: frozenset[str] | None
) -> ExpectationSpec:
    place = f"{place}, expectation {number},"
    if not isinstance(written, dict) or not isinstance(written.get("type"), str):
        raise _not_a_suite(place, "it has no `type`")
    type_ = written["type"]
    if types is not None and type_ not in types:
        otherwise = "Correct it, or add the module that defines it to `modules` of `quality`."
        raise SettingsInvalid(
            f"{place} has the type {type_}, which does not exist", did_you_mean(type_, types, otherwise)
        )
    kwargs = written.get("kwargs") or {}
    if not isinstance(kwargs, dict):
        raise _not_a_suite(place, "its `kwargs` are not an object")
    check_condition(place, kwargs)
    check_json_schema(place, kwargs.get("json_schema"))
    severity = written.get("severity")
    levels: dict[Any, Severity] = {level.value: level for level in Severity} | {None: default}
    if severity not in levels:
        raise _not_a_suite(place, f"its severity {severity!r} is not one of {', '.join(map(str, Severity))}")
    return ExpectationSpec(number, type_, kwargs, levels[severity], written.get("meta") or {})


def _parameters(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        if isinstance(value.get(PARAMETER), str):
            yield value[PARAMETER]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _parameters(item)


def _not_a_suite(place: str, why: str) -> SettingsInvalid:
    return SettingsInvalid(f"{place} is not a suite of Great Expectations: {why}", "Correct the file.")
