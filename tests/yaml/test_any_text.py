"""Whatever is written, the answer is a pipeline or PipelineInvalid, never another exception."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.model.expressions import ALLOWED, REFUSED
from tests.model.files import GOOD, everything, several_sources
from tidegate.errors import ConditionFailed, PipelineInvalid, Problem
from tidegate.model.aggregates import parse_aggregate
from tidegate.model.columns import parse_columns
from tidegate.model.condition import parse_condition
from tidegate.model.formula import parse_column
from tidegate.model.sql import check_expression
from tidegate.yaml.cases import load_cases
from tidegate.yaml.load import parse_case_pipeline, parse_pipeline
from tidegate.yaml.tree import read, write

LINES = GOOD.splitlines()
_WORDS = (
    "quantity nested.b rand() now 'now' ( ) [ ] , . -> = < > and or not in is null case when then end cast as"
)
_WORDS += " int timestamp select from x y r' \\ ' \" ` ${a} -- /* ; :: : @ $ ? 1 1L || interval day over"
_PIECES = st.sampled_from([*_WORDS.split(" "), " "])

_AGGREGATES = ["count", "sum", "(", ")", "*", "quantity", "distinct ", " over ", " filter ", ",", "'", "["]

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def refused(attempt: Callable[[], object]) -> tuple[Problem, ...]:
    """The problems that it was refused for; none when it was accepted."""
    try:
        attempt()
    except PipelineInvalid as error:
        problems = error.problems
    else:
        return ()
    assert problems
    assert all(problem.line >= 1 and problem.field and problem.message for problem in problems)
    return problems


def parsed(text: str, file: str = "p.yaml") -> tuple[Problem, ...]:
    return refused(lambda: parse_pipeline(text, file))


@given(st.text())
@example("\ud800")
@example("{a: [}")
@example("? ? a")
@example("%YAML 9.9\n---\na")
@example("a: !<tag:yaml.org,2002:int> x")
@example("--- !!map\n? !!seq []\n: 1")
def test_any_text_loads_or_reports_mistakes(text: str) -> None:
    parsed(text)
    parsed(text, "p.json")


@given(st.integers(0, len(LINES) - 1), st.text(max_size=20))
def test_any_text_in_the_place_of_a_line(at: int, line: str) -> None:
    parsed("\n".join([*LINES[:at], line, *LINES[at + 1 :]]))


@given(st.integers(0, len(LINES) - 1), _JSON)
def test_any_value_in_the_place_of_a_value(at: int, value: Any) -> None:
    name, colon, _ = LINES[at].partition(": ")
    parsed("\n".join([*LINES[:at], name + colon + json.dumps(value), *LINES[at + 1 :]]))


@given(st.dictionaries(st.sampled_from(["pipeline", "source", "stages", "sinks", "lookup", "x"]), _JSON))
def test_any_mapping_loads_or_reports_mistakes(data: dict[str, Any]) -> None:
    refused(lambda: parse_case_pipeline(data, "case.json"))


def _routes(data: Any, route: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value."""
    inner: list[Any] = []
    if isinstance(data, (dict, list)):
        inner = list(data.items()) if isinstance(data, dict) else list(enumerate(data))
    return [route, *(inner_route for name, value in inner for inner_route in _routes(value, (*route, name)))]


def test_everything_is_without_mistakes() -> None:
    for data in (everything(), several_sources()):
        assert refused(functools.partial(parse_case_pipeline, data, "p.json")) == ()


_VALUES = _JSON | st.sampled_from(
    [
        "",
        "1h",
        "1%",
        "count(*)",
        "sum(n)",
        "latest",
        "collect",
        "change",
        "m",
        "old.m is null",
        "a/b",
        "spill",
    ]
)


Route = tuple[Any, ...]
_PLACES = st.sampled_from(
    [(make, route) for make in (everything, several_sources) for route in _routes(make())[1:]]
)


@given(_PLACES, _VALUES, st.sampled_from(["", "x", "on", "key", "stage"]))
def test_any_value_in_the_place_of_any_other(
    place: tuple[Callable[[], dict[str, Any]], Route], value: Any, name: str
) -> None:
    make, route = place
    data: Any = make()
    around = functools.reduce(lambda inner, part: inner[part], route[:-1], data)
    around[route[-1]] = value
    if name and isinstance(around, dict):
        around[name] = value
    refused(lambda: parse_case_pipeline(data, "p.json"))


@given(_PLACES)
def test_anything_may_be_missing(place: tuple[Callable[[], dict[str, Any]], Route]) -> None:
    make, route = place
    data: Any = make()
    del functools.reduce(lambda inner, part: inner[part], route[:-1], data)[route[-1]]
    refused(lambda: parse_case_pipeline(data, "p.json"))


@given(st.dictionaries(st.sampled_from(["name", "pipeline", "tables", "input", "expect", "cases"]), _JSON))
def test_any_case_loads_or_reports_mistakes(data: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(json.dumps(data))
        refused(lambda: load_cases(path))


@given(st.text() | st.lists(_PIECES, max_size=12).map(" ".join) | st.lists(_PIECES, max_size=12).map("".join))
def test_any_expression_is_accepted_or_refused(text: str) -> None:
    faults = check_expression(text, {"quantity": None, "nested": None})
    assert all(fault.message and fault.fix for fault in faults)


@given(st.text() | st.lists(_PIECES, max_size=12).map(" ".join), st.none() | st.integers() | st.text())
def test_any_condition_is_accepted_or_refused(text: str, value: Any) -> None:
    condition, faults = parse_condition(text, {"quantity": None, "nested": None, "x": None})
    assert (condition is None) == bool(faults)
    assert all(fault.message and fault.fix for fault in faults)
    if condition is not None:
        with contextlib.suppress(ConditionFailed):
            condition.evaluate({"quantity": value, "nested": {"b": value}, "x": value})


@given(st.text() | st.lists(st.sampled_from(_AGGREGATES), max_size=9).map("".join))
def test_any_aggregate_is_accepted_or_refused(text: str) -> None:
    call, faults = parse_aggregate(text, {"quantity": None, "x": None})
    assert bool(call.function) or bool(faults)
    assert all(fault.message and fault.fix for fault in faults)


@given(st.text() | st.lists(st.sampled_from([*_AGGREGATES, " + ", " / "]), max_size=14).map("".join))
def test_any_formula_is_accepted_or_refused(text: str) -> None:
    column, faults = parse_column(text, {"quantity": None, "x": None})
    assert bool(column.tree) or bool(faults)
    assert all(fault.message and fault.fix for fault in faults)


@given(st.sampled_from([*ALLOWED, *(text for text, _ in REFUSED if len(text) < 100)]), st.data())
def test_dangerous_call_is_found_anywhere_in_an_expression(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    inside = text[:at] + " rand() " + text[at:]
    in_quotes = inside.replace(" rand() ", " x ")
    faults = check_expression(inside, None)
    if not faults:
        # then it stands inside of quotes, where another text may stand as well
        assert check_expression(in_quotes, None) == []


@given(st.text(alphabet="abint<>(),: `-8struckmapy"))
def test_any_columns_are_accepted_or_refused(text: str) -> None:
    columns, faults = parse_columns(text)
    assert columns or faults


_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text() | st.from_regex(r"[-+]?[0-9._]{1,3}(e[-+]?[0-9])?")
)
_WRITABLE = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(data=st.dictionaries(st.text(), _WRITABLE, min_size=1))
@example(data={"1e5": "1e5", "a": ["NaN", "0x1F", "no", "~", "1_0"]})
def test_written_yaml_is_read_as_the_same(data: dict[str, Any]) -> None:
    same = [data]
    assert read(write({"a": same, "b": same}), "p.yaml").data == {"a": same, "b": same}
