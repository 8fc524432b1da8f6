"""Which conditions and schemas a suite may have: those that run no code and fetch nothing.

Great Expectations hands a condition for pandas to `DataFrame.query`, which reaches the names of the calling
module, and so any command. The condition objects that its API writes compare a column with values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.errors import SettingsInvalid

_SAFE_PARSERS = ("great_expectations", "great_expectations__experimental__")
"""Parsers with a grammar of their own: `col("price") > 1`."""
_COMBINED = ("and", "or")
_SCALARS = (str, int, float, bool, type(None))


def check_condition(place: str, kwargs: Mapping[str, Any]) -> None:
    """Raise SettingsInvalid for a `row_condition` that pandas would run as code. `place`: the expectation."""
    for why in _faults(kwargs.get("row_condition"), kwargs.get("condition_parser")):
        raise SettingsInvalid(
            f"{place} has a `row_condition` that would be run as code: {why}",
            'Write a condition object, as the API of Great Expectations does: {"type": "comparison", '
            '"column": {"name": "price"}, "operator": ">", "parameter": 1}; or `col("price") > 1` with '
            '"condition_parser": "great_expectations".',
        )


def _faults(condition: Any, parser: Any) -> Iterator[str]:
    if isinstance(condition, str):
        if parser not in _SAFE_PARSERS:
            yield f"its parser is {parser!r}"
        elif "`" in condition or "@" in condition:
            yield "it holds a backtick or an @"
    elif isinstance(condition, dict):
        yield from _faults_of_object(condition)
    elif condition is not None:
        yield f"it is a {type(condition).__name__}"


def _faults_of_object(condition: Mapping[str, Any]) -> Iterator[str]:
    type_ = condition.get("type")
    if type_ in _COMBINED:
        parts = condition.get("conditions")
        for part in parts if isinstance(parts, list) else [None]:
            yield from _faults_of_object(part) if isinstance(part, dict) else ["a part of it is no object"]
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
            yield f"it compares with {value!r}"


def check_json_schema(place: str, schema: Any) -> None:
    """Raise SettingsInvalid for a JSON Schema that refers to another document, which would be fetched."""
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
