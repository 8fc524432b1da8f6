"""A suite's file, read without Great Expectations: what it expects, and how much of a failure each would be.

The file is the one that its API writes. What only its classes know, such as whether a bound is a number, is
found when the suite is evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import SettingsInvalid
from tidegate.formats.explained import Explained
from tidegate.quality.conditions import check_condition, check_json_schema
from tidegate.quality.types import CORE_TYPES
from tidegate.spec.mistakes import did_you_mean

PARAMETER = "$PARAMETER"
"""What begins a value that is taken from the suite's parameters."""


class Severity(Explained):
    """How much of a failure it is when an expectation is not met, the worst first."""

    CRITICAL = "critical", "The batch stops before anything is visible."
    WARNING = "warning", "The batch goes on, and it is told."
    INFO = "info", "It is noted."

    def __str__(self) -> str:
        return str.__str__(self)


@dataclass(frozen=True)
class ExpectationSpec:
    """An expectation as the file has it. `number`: its place there, from 1 on."""

    number: int
    type: str
    kwargs: Mapping[str, Any]
    severity: Severity
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is of; none: of the whole."""
        single = (self.kwargs.get(name) for name in ("column", "column_A", "column_B"))
        several = self.kwargs.get("column_list") or ()
        return tuple(str(name) for name in (*single, *several) if isinstance(name, str))

    @property
    def parameters(self) -> frozenset[str]:
        """The texts of the parameters that it is evaluated with, such as `previous_rows * 0.5`."""
        return frozenset(_parameters(self.kwargs))


@dataclass(frozen=True)
class Suite:
    """A suite. `parameters`: values that the file itself gives to names."""

    name: str
    expectations: tuple[ExpectationSpec, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)


def parse_suite(
    text: str, place: str, default: Severity = Severity.CRITICAL, others: Iterable[str] | None = ()
) -> Suite:
    """The suite in a text; `place` is what an error calls it. Raises SettingsInvalid.

    `default`: the severity of expectations that do not say theirs. `others`: types that are known beside
    Great Expectations' own; None: any may be.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise _not_a_suite(place, f"it is no JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("expectations"), list):
        raise _not_a_suite(place, "it is no object with a list of `expectations`")
    if not isinstance(data.get("name"), str) or not data["name"]:
        raise _not_a_suite(place, "its `name` is missing")
    known = None if others is None else CORE_TYPES | set(others)
    expectations = tuple(
        _expectation(number, written, place, default, known)
        for number, written in enumerate(data["expectations"], start=1)
    )
    return Suite(data["name"], expectations, data.get("suite_parameters") or {})


def _expectation(
    number: int, written: Any, place: str, default: Severity, known: frozenset[str] | None
) -> ExpectationSpec:
    place = f"{place}, expectation {number},"
    if not isinstance(written, dict) or not isinstance(written.get("type"), str):
        raise _not_a_suite(place, "it has no `type`")
    type_ = written["type"]
    if known is not None and type_ not in known:
        otherwise = "Correct it, or name the module that has it in `modules` of `quality`."
        raise SettingsInvalid(
            f"{place} is a {type_}, which is not known", did_you_mean(type_, known, otherwise)
        )
    kwargs = written.get("kwargs") or {}
    if not isinstance(kwargs, dict):
        raise _not_a_suite(place, "its `kwargs` are no object")
    check_condition(place, kwargs)
    check_json_schema(place, kwargs.get("json_schema"))
    severity = written.get("severity")
    levels: dict[Any, Severity] = {level.value: level for level in Severity} | {None: default}
    if severity not in levels:
        raise _not_a_suite(place, f"its severity {severity!r} is none of {', '.join(map(str, Severity))}")
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
    return SettingsInvalid(f"{place} is no suite of Great Expectations: {why}", "Correct the file.")
