"""Turn pydantic's errors into problems that a person can act on: field, line, message and fix."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidegate.errors import Problem
from tidegate.spec.grammar import PIPELINE, Grammar
from tidegate.spec.mistakes import MISTAKE, did_you_mean, faults_of, listed, shown
from tidegate.spec.tree import Route, Tree

_Mistake = tuple[Route, str, str]
"""The route, the message, and the fix."""

_NO_COLUMN = re.compile(r"the column `(.+)` does not exist|the stage emits no column `(.+)`")
_SUGGESTED = re.compile(r"Did you mean `(.+)`\?")
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


def as_problems(error: ValidationError, tree: Tree, grammar: Grammar = PIPELINE) -> list[Problem]:
    """Return all mistakes as problems, sorted by line and field. Mistakes that follow from another one are
    left out.

    Args:
        error: Pydantic's error.
        tree: The data that was validated, with its lines.
        grammar: The grammar of the file, for examples of fields.
    """
    mistakes = []
    for details in error.errors(include_url=False):
        route = _route(details, grammar)
        mistakes += [(route, *words) for words in _words(details, route, tree.data, grammar)]
    problems = [tree.problem(*mistake) for mistake in _causes(mistakes, tree.data)]
    # Sorted first: the remaining problem is at the first place that names the column.
    return _one_per_name(sorted(problems, key=lambda problem: (problem.line, problem.field)))


def _causes(mistakes: list[_Mistake], data: Any) -> list[_Mistake]:
    """Return the mistakes without those that a misspelt field causes: the field with the right name is
    missing, and so are the columns that the field would have named.
    """
    misspelt = {
        (*route[:-1], suggested[1]): _at(data, route)
        for route, message, fix in mistakes
        if message.startswith("unknown field") and (suggested := _SUGGESTED.fullmatch(fix))
    }
    names = {name for written in misspelt.values() if isinstance(written, dict) for name in written}
    return [
        (route, message, fix)
        for route, message, fix in mistakes
        if route not in misspelt and _missing_column(message) not in names
    ]


def _one_per_name(problems: list[Problem]) -> list[Problem]:
    """Merge the problems of all places that name the same missing column into one, at the first place."""
    by_name: dict[str, list[Problem]] = {}
    for problem in problems:
        by_name.setdefault(_missing_column(problem.message) or str(problem), []).append(problem)
    return [_with_places(*same) for same in by_name.values()]


def _missing_column(message: str) -> str | None:
    match = _NO_COLUMN.fullmatch(message)
    return match and (match[1] or match[2])


def _with_places(first: Problem, *repeated: Problem) -> Problem:
    places = list(dict.fromkeys(f"{other.field}, line {other.line}" for other in repeated if other != first))
    if not places:
        return first
    return replace(first, message=f"{first.message} (also: {'; '.join(places)})")


def _route(details: ErrorDetails, grammar: Grammar) -> Route:
    """Return pydantic's location without tags of unions, and with the field that decides the form
    of a choice.
    """
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
    """Return messages with fixes: one, or several for a text with several faults."""
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
    """Return the message and fix of an unknown field: it is misspelt, in the wrong place, or of
    another form.
    """
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
    """Return the message and fix of a word that is not allowed.

    Pydantic lists the words as text: `'a', 'b' or 'c'`.
    """
    written = context.get("tag", details["input"])
    # Unions have tags, literals have words.
    expected = str(context.get("expected_tags", context.get("expected")))
    allowed = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    choices = f"Write {listed(allowed)}." if len(allowed) == 1 else f"Write one of {listed(allowed)}."
    return f"{shown(written)} is not known", did_you_mean(str(written), allowed, choices)


def _at(data: Any, route: Route) -> Any:
    for part in route:
        data = data[part]
    return data
