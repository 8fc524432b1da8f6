"""Text to data: YAML and JSON, with the line of everything that is written, and nothing clever.

YAML is read as the plain tree of values that it looks like. Whatever would make it mean more than it
shows is refused: aliases (and their bombs), tags, duplicate fields, several documents. `on`, `yes` and
`12:30` are text here, numbers may have underscores (`5_000_000`), and only `true` and `false` are booleans.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml

from tidegate.errors import PipelineInvalid, Problem

Route = tuple["str | int", ...]
"""The way to a value: field names and list positions, as in `("sinks", 0, "topic")`."""

MAX_CHARACTERS = 10_000_000
_TAG = "tag:yaml.org,2002:"


class Fraction(float):
    """A number with a point or an exponent, and beside it the exact digits that were written."""

    text: str

    def __new__(cls, text: str) -> Fraction:
        """The nearest double. Raises ValueError when the text is not a number."""
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass(frozen=True)
class Tree:
    """What a file says. `data` is made of dict (with str keys), list, str, int, float, bool and None."""

    file: str
    data: Any
    locate: Callable[[], dict[Route, int]]
    root: Route = ()

    @cached_property
    def lines(self) -> dict[Route, int]:
        """Where each value is written, 1-based, from the file's top."""
        return self.locate()

    def problem(self, route: Route, message: str, fix: str) -> Problem:
        """A mistake at `route`, or at the nearest written thing around it."""
        dotted = ".".join(map(str, self.root + route)) or "file"
        return Problem(self.file, self.line(route), dotted, message, fix)

    def line(self, route: Route) -> int:
        """The line of `route`; where that is not written, of what should hold it."""
        whole = self.root + route
        known = (self.lines.get(whole[:size]) for size in range(len(whole), -1, -1))
        return next((line for line in known if line is not None), 1)

    def below(self, *names: str | int) -> Tree:
        """The part of the file under these names; problems still name it from the file's top."""
        data = self.data
        for name in names:
            data = data[name]
        return Tree(self.file, data, lambda: self.lines, self.root + names)


def unlocated(data: Any, file: str) -> Tree:
    """Data that was not read from a text: every problem is on line 1."""
    return Tree(file, data, dict)


def read_text(path: Path) -> str:
    """The file's exact text, line ends included. UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        message, fix = f"byte {error.start} is not UTF-8", "Save the file as UTF-8."
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message, fix = f"cannot be read: {reason}", "Check the path and its permissions."
    raise _unreadable(str(path), 1, message, fix)


def read(text: str, file: str) -> Tree:
    """The tree of a text: JSON where the file's name ends in `.json`, YAML otherwise."""
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(file, 1, f"longer than {MAX_CHARACTERS:,} characters", "Split the file.")
    return _read_json(text, file) if file.endswith(".json") else _read_yaml(text, file)


def _unreadable(file: str, line: int, message: str, fix: str) -> PipelineInvalid:
    return PipelineInvalid([Problem(file, line, "file", message, fix)])


# YAML


class _Loader(yaml.SafeLoader):
    """Composes nodes only. Scalars are told apart by the patterns below, not by YAML 1.1's."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (the base class declares it as an instance's)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = cast(Any, self).get_event().start_mark  # untyped in the stubs
            raise yaml.MarkedYAMLError(problem="an alias (*) hides what is written", problem_mark=mark)
        return super().compose_node(parent, index)


_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
)
for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        _TAG + _name, re.compile(rf"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
    )

_VALUES: dict[str, Callable[[str], Any]] = {
    _TAG + "str": str,
    _TAG + "null": lambda text: None,
    _TAG + "bool": lambda text: text.lower() == "true",
    _TAG + "int": lambda text: int(text.replace("_", "")),
    _TAG + "float": lambda text: Fraction(text.replace("_", "")),
}


@dataclass
class _Reading:
    """One walk over the nodes: values out, lines and mistakes collected."""

    file: str
    lines: dict[Route, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def value(self, node: yaml.Node, route: Route) -> Any:
        self.lines.setdefault(route, _line(node))
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self.mapping(node, route)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*route, at)) for at, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _VALUES:
            return self.scalar(node, route)
        return self.refuse(node, route, f"the tag `{node.tag}` is not supported", "Write the plain value.")

    def scalar(self, node: yaml.ScalarNode, route: Route) -> Any:
        try:
            node.value.encode()  # an escape such as "\\ud800" is half a character
            return _VALUES[node.tag](node.value)
        except ValueError:
            kind = node.tag.removeprefix(_TAG)
            return self.refuse(node, route, f"not a usable {kind}", "Write it plainly, or quote it.")

    def mapping(self, node: yaml.MappingNode, route: Route) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, item in node.value:
            if key.tag != _TAG + "str":
                self.refuse(key, route, "a field's name must be text", "Put the name in quotes.")
                continue
            name: str = key.value
            here = (*route, name)
            if name in result:
                fix = f"Keep one of the two; the first is on line {self.lines[here]}."
                self.refuse(key, here, "written twice", fix)
                continue
            self.lines[here] = _line(key)
            result[name] = self.value(item, here)
        return result

    def refuse(self, node: yaml.Node, route: Route, message: str, fix: str) -> None:
        dotted = ".".join(map(str, route)) or "file"
        self.problems.append(Problem(self.file, _line(node), dotted, message, fix))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _read_yaml(text: str, file: str) -> Tree:
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            raise _unreadable(file, 1, "the file is empty", "Write a pipeline; see `availability.yaml`.")
        reading = _Reading(file)
        data = reading.value(node, ())
    except yaml.YAMLError as error:
        raise _not_yaml(error, text, file) from None
    except RecursionError:
        raise _unreadable(file, 1, "nested too deeply", "Write it flatter.") from None
    if reading.problems:
        raise PipelineInvalid(reading.problems)
    return Tree(file, data, lambda: reading.lines)


def _not_yaml(error: yaml.YAMLError, text: str, file: str) -> PipelineInvalid:
    """PyYAML's complaint as one readable problem."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, int(error.position)) + 1
        return _unreadable(file, line, "holds a character that YAML does not allow", "Remove it.")
    if not isinstance(error, yaml.MarkedYAMLError):
        return _unreadable(file, 1, f"not YAML: {error}", "Correct it.")
    mark = error.problem_mark or error.context_mark
    line = int(mark.line) + 1 if mark else 1
    message = ", ".join(part for part in (error.context, error.problem) if part)
    return _unreadable(file, line, f"not YAML that can be used: {message}", _yaml_fix(message))


def _yaml_fix(message: str) -> str:
    if r"'\t'" in message:
        return "Indent with spaces; tabs are not allowed there."
    if "alias" in message:
        return "Write the value out."
    if "single document" in message:
        return "Put each document into a file of its own, without `---`."
    return "Check the indentation, colons, brackets and quotes around this line."


# JSON


class _Twice(ValueError):
    """A JSON object has a name twice."""


def _read_json(text: str, file: str) -> Tree:
    line = 1
    try:
        data = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=Fraction
        )
        return Tree(file, data, lambda: _lines_or_none(text, file))
    except json.JSONDecodeError as error:
        line, message, fix = error.lineno, f"not JSON: {error.msg}", "Check commas, quotes and brackets."
    except _Twice as error:
        _lines_of_json(text, file)  # knows the line, and raises
        message, fix = f"{error} is written twice", "Keep one of the two."
    except ValueError as error:
        message, fix = f"not JSON that can be used: {error}", "Write an ordinary number."
    except RecursionError:
        message, fix = "nested too deeply", "Write it flatter."
    raise _unreadable(file, line, message, fix)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise _Twice(f"`{name}`")
        result[name] = value
    return result


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number that JSON has")


def _lines_of_json(text: str, file: str) -> dict[Route, int]:
    """JSON is YAML once its tabs, which cannot stand in its strings, are spaces."""
    return _read_yaml(text.replace("\t", " "), file).lines


def _lines_or_none(text: str, file: str) -> dict[Route, int]:
    """Only messages depend on it: better without lines than another complaint."""
    try:
        return _lines_of_json(text, file)
    except PipelineInvalid:
        return {}
