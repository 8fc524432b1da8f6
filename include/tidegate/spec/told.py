"""Pydantic's errors, told so that a person can act: field, line, what was found, what to write."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidegate.errors import Problem
from tidegate.spec.grammar import PIPELINE, Grammar
from tidegate.spec.mistakes import MISTAKE, did_you_mean, faults_of, listed, shown
from tidegate.spec.tree import Route, Tree

_SHAPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "null",
}


def tell(error: ValidationError, tree: Tree, grammar: Grammar = PIPELINE) -> list[Problem]:
    """Every error as a problem."""
    problems = []
    for details in error.errors(include_url=False):
        route = _route(details, grammar)
        problems += [
            tree.problem(route, *message_and_fix)
            for message_and_fix in _words(details, route, tree.data, grammar)
        ]
    return problems


def _route(details: ErrorDetails, grammar: Grammar) -> Route:
    """Pydantic's location without its own additions, and with the field that a choice depends on."""
    route: Route = ()
    chosen = False
    for part in details["loc"]:
        if grammar.generic(route) in grammar.choices and not chosen:
            chosen = True  # the part is the choice itself, such as "kafka"
        elif part != "[key]":
            route, chosen = (*route, part), False
    if details["type"].startswith("union_tag"):
        route = (*route, grammar.choices[grammar.generic(route)][0])
    return route


def _words(details: ErrorDetails, route: Route, data: Any, grammar: Grammar) -> list[tuple[str, str]]:
    """Messages and fixes; one, but for a text with several faults in it."""
    kind, context = details["type"], details.get("ctx", {})
    if kind == MISTAKE:
        return [(fault.message, fault.fix) for fault in faults_of(context)]
    if kind == "extra_forbidden":
        return [_unknown(route, data, grammar)]
    if kind in ("literal_error", "union_tag_invalid"):
        return [_not_one_of(details, context)]
    example = grammar.example(route)
    fix = f"Write for example `{example}`." if example else f"Known are {listed(grammar.fields(''))}."
    return [(_message(details, route), fix)]


def _message(details: ErrorDetails, route: Route) -> str:
    kind, written = details["type"], shown(details["input"])
    if kind in ("missing", "union_tag_not_found"):
        return f"`{route[-1]}` is missing"
    if kind in _SHAPES:
        return f"it has to be {_SHAPES[kind]}, not {written}"
    if kind in ("greater_than_equal", "greater_than", "less_than"):
        return f"{written} is too {'large' if kind == 'less_than' else 'small'}"
    return "it is empty" if kind == "too_short" else details["msg"]


def _unknown(route: Route, data: Any, grammar: Grammar) -> tuple[str, str]:
    """A field that is not known here: misspelt, out of place, or of another choice."""
    parent, name = grammar.generic(route[:-1]), str(route[-1])
    fields = grammar.fields(parent)
    if name in fields and parent in grammar.choices:
        mapping = _at(data, route[:-1])
        chooser = next((field for field in grammar.choices[parent] if field in mapping), name)
        return f"`{name}` does not go with `{chooser}: {mapping.get(chooser)}`", "Leave it out."
    place = f" in `{route[-2]}`" if len(route) > 1 and isinstance(route[-2], str) else ""
    fix = did_you_mean(name, fields, f"Known are {listed(fields)}." if fields else "Leave it out.")
    return f"unknown field `{name}`{place}", fix


def _not_one_of(details: ErrorDetails, context: dict[str, Any]) -> tuple[str, str]:
    """A word out of a few, which pydantic gives as a text: `'json', 'string' or 'bytes'`."""
    written = context.get("tag", details["input"])
    expected = str(context.get("expected_tags", context.get("expected")))
    allowed = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    choices = f"Write {listed(allowed)}." if len(allowed) == 1 else f"Write one of {listed(allowed)}."
    return f"{shown(written)} is not known", did_you_mean(str(written), allowed, choices)


def _at(data: Any, route: Route) -> Any:
    for part in route:
        data = data[part]
    return data
