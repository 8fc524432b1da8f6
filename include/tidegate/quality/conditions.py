"""Refuse the conditions and schemas of a suite that would run code or fetch documents.

Great Expectations passes a condition for pandas to `DataFrame.query`, which can use the names of the calling
module, and so run any command. Condition objects, as its API writes them, only compare a column with values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.errors import SettingsInvalid

_SAFE_PARSERS = ("great_expectations", "great_expectations__experimental__")
"""Parsers that have their own grammar, such as `col("price") > 1`, and run no code."""
_COMBINED = ("and", "or")
_SCALARS = (str, int, float, bool, type(None))


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
