"""Parse the file of a suite without Great Expectations: its expectations and their severities.

The file is the one that the API of Great Expectations writes. What only its classes know, such as whether a
bound is a number, is checked when the suite is evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import SettingsInvalid
from tidegate.formats.reasons import Explained
from tidegate.quality.conditions import check_condition, check_json_schema
from tidegate.quality.types import CORE_TYPES
from tidegate.spec.mistakes import did_you_mean

PARAMETER = "$PARAMETER"
"""The key of an object that stands for a value from the suite's parameters."""


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
