"""YAML as a tree that knows its lines, and keeps numbers as they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml
from tidegate.errors import PipelineInvalid, Problem
from tidegate.model.names import Fraction

Route = tuple["str | int", ...]
"""The way to a value: field names and list positions, as in `("sinks", 0, "topic")`."""

MAX_CHARACTERS = 10_000_000
_WIDTH = 100
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Tree:
    """The data of a file, with the line of each value.

    Args:
        file: The file's name in problems.
        data: It consists of dict (with str keys), list, str, int, float, bool and None.
        locate: Returns route -> line. It runs only if there is a problem.
        root: The route of `data` in the file.
    """

    file: str
    data: Any
    locate: Callable[[], dict[Route, int]]
    root: Route = ()

    @cached_property
    def lines(self) -> dict[Route, int]:
        """Route -> line of each value, counted from 1."""
        return self.locate()

    def problem(self, route: Route, message: str, fix: str) -> Problem:
        """Return a problem at a route, or at the nearest value around it that is written.

        Example: `tree.problem(("sinks", 0, "topic"), "it is empty", "Write a topic.")`
        """
        dotted = ".".join(map(str, self.root + route)) or "file"
        return Problem(self.file, self.line(route), dotted, message, fix)

    def line(self, route: Route) -> int:
        """Return the line of a route; if it is not written, the line of the value that should contain it."""
        whole = self.root + route
        lines = (self.lines.get(whole[:size]) for size in range(len(whole), -1, -1))
        return next((line for line in lines if line is not None), 1)

    def below(self, *names: str | int) -> Tree:
        """Return the part of the file at this route.

        Its problems still have the route from the top of the file.
        """
        data = self.data
        for name in names:
            data = data[name]
        return Tree(self.file, data, lambda: self.lines, self.root + names)


def unlocated(data: Any, file: str) -> Tree:
    """Return a tree of data that was not read from a text: every problem is on line 1.

    Example: `unlocated({"topics": ["stock"]}, "case.yaml")`
    """
    return Tree(file, data, dict)


def read_text(path: Path) -> str:
    """Return the exact text of a file in UTF-8, with its line ends.

    Raises PipelineInvalid if it cannot be read.
    """
    try:
        # Not `read_text`, which would translate line ends: the pipeline's hash is of the exact text.
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        message, fix = f"byte {error.start} is not UTF-8", "Save the file as UTF-8."
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message, fix = f"cannot be read: {reason}", "Check the path and its permissions."
    raise _unreadable(str(path), 1, message, fix)


def read(text: str, file: str) -> Tree:
    """Parse a text: as JSON if the file's name ends with `.json`, otherwise as YAML.

    Raises PipelineInvalid if it cannot be parsed, or has something that is refused.

    Example: `read("topics: [stock]", "a.yaml").data == {"topics": ["stock"]}`
    """
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(file, 1, f"longer than {MAX_CHARACTERS:,} characters", "Split the file.")
    return _read_json(text, file) if file.endswith(".json") else _read_yaml(text, file)


def write(data: Any) -> str:
    """Return data as YAML that `read` reads as the same data.

    Example: `write({"at": "1e5"})` is `at: '1e5'`
    """
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def _unreadable(file: str, line: int, message: str, fix: str) -> PipelineInvalid:
    return PipelineInvalid([Problem(file, line, "file", message, fix)])


# YAML


class _Loader(yaml.SafeLoader):
    """A loader that composes nodes only.

    The patterns below distinguish scalars, instead of those of YAML 1.1.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (the base class declares it as an instance's)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = cast(Any, self).get_event().start_mark  # untyped in the stubs
            raise yaml.MarkedYAMLError(problem="an alias (*) hides what is written", problem_mark=mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes texts that are something else to `_Loader`, or by YAML 1.1."""

    def ignore_aliases(self, data: Any) -> bool:
        return True  # `_Loader` refuses them

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # PyYAML folds these line ends within single quotes, and reads a blank.
        style = '"' if re.search("[\x85\u2028\u2029]", data) else None
        return self.represent_scalar(_TAG + "str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
)
for _name, _pattern, _first in _SCALARS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
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
    """Converts nodes to values, and collects lines and problems."""

    file: str
    lines: dict[Route, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def value(self, node: yaml.Node, route: Route) -> Any:
        # `mapping` has noted the line of the field's name, which is where people look.
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
            # before the value is read, so that its own line does not replace this one
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
    """Return the error of PyYAML as a single problem with a fix."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, int(error.position)) + 1
        return _unreadable(file, line, "contains a character that YAML does not allow", "Remove it.")
    if not isinstance(error, yaml.MarkedYAMLError):
        return _unreadable(file, 1, f"not YAML: {error}", "Correct it.")
    # The place of the problem; the context may have begun many lines before.
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
    """A JSON object contains a name twice."""


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
    """Return the line of each value in JSON.

    JSON is valid YAML after replacing tabs, which its strings cannot contain.
    """
    # One blank for one tab keeps every line where it is.
    return _read_yaml(text.replace("\t", " "), file).lines


def _lines_or_none(text: str, file: str) -> dict[Route, int]:
    """Return the lines, or none if they cannot be found: only messages need them."""
    try:
        return _lines_of_json(text, file)
    except PipelineInvalid:
        return {}


def exact(value: Any) -> Any:
    """Return the value with a Decimal for each number that has a point or an exponent.

    Example: `exact({"price": Fraction("0.10")})` is `{"price": Decimal("0.10")}`.
    """
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    return Decimal(value.text) if isinstance(value, Fraction) else value


def exact_text(value: Any, ensure_ascii: bool = True) -> str:
    """Return the JSON text of a value that may contain decimals, which `json.dumps` refuses.

    >>> exact_text({"price": Decimal("0.10")})
    '{"price": 0.10}'
    """
    if isinstance(value, dict):
        names = (json.dumps(name, ensure_ascii=ensure_ascii) for name in value)
        items = (exact_text(item, ensure_ascii) for item in value.values())
        return "{" + ", ".join(f"{name}: {item}" for name, item in zip(names, items, strict=True)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(exact_text(item, ensure_ascii) for item in value) + "]"
    # A Decimal's text is a JSON number, with the digits as they were written.
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=ensure_ascii)


def read_exactly(text: str) -> Any:
    """Return the value of a JSON text, with a Decimal for each fraction.

    Raises ValueError if it is not JSON.

    Example: `read_exactly("0.10")` is `Decimal("0.10")`.
    """
    return json.loads(text, parse_float=Decimal)
