"""The grammar beyond its types: an example of every field, and what is described but not built yet.

To build something of the second table: give it a model beside its like and an example here; delete its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.spec.tree import Route

EXAMPLES = {
    "pipeline": "pipeline: availability",
    "generation": "generation: 1",
    "schedule": 'schedule: "*/5 * * * *"',
    "source": "source: {topics: [stock], format: json, columns: …}",
    "source.topics": "topics: [stock]",
    "source.format": "format: json",
    "source.columns": 'columns: "storeId string, id bigint, quantity int"',
    "source.key": "key: [storeId, id]",
    "source.timestamp": "timestamp: record",
    "source.explode": "explode: null",
    "source.deduplicate": "deduplicate: offset",
    "source.max_records": "max_records: 5_000_000",
    "source.start": "start: earliest",
    "lookup": "lookup: []",
    "stages": "stages: [{name: availability, emit: {on: change}}]",
    "stages.*.name": "name: availability",
    "stages.*.select": 'select: {isAvailable: "quantity > 0"}',
    "stages.*.select.*": 'isAvailable: "quantity > 0"',
    "stages.*.reduce": "reduce: latest",
    "stages.*.emit": "emit: {on: change, equal: exact}",
    "stages.*.emit.on": "on: change",
    "stages.*.emit.equal": "equal: exact",
    "stages.*.emit.columns": "columns: [isAvailable]",
    "stages.*.emit.ignore": "ignore: [updatedAt]",
    "stages.*.emit.state": "state: value",
    "stages.*.where": 'where: "isAvailable"',
    "sinks": "sinks: [{kind: kafka, topic: availability}]",
    "sinks.*.kind": "kind: kafka",
    "sinks.*.topic": "topic: availability",
    "sinks.*.path": "path: availability",
    "sinks.*.with_key": "with_key: true",
    "sinks.*.stage": "stage: availability",
    "quality": "quality: {suite: availability, on_failure: stop}",
    "quality.suite": "suite: availability",
    "quality.on_failure": "on_failure: stop",
}
"""Every field of the grammar that is built, by its generic path, and how it is written."""


@dataclass(frozen=True)
class NotBuilt:
    """A part of the grammar that is not built: where, which of its values, what it is, what to do instead."""

    path: str
    applies: Callable[[Any], bool]
    what: str
    instead: str


def _given(value: Any) -> bool:
    return value is not None


def _one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in words


_UPDATE = "Use `on: update` or `on: change`."
_EXACT = "Use `equal: exact`, which is the default."

NOT_BUILT = (
    NotBuilt("source.format", _one_of("avro", "protobuf"), "`{}`", "Use `json`, `string` or `bytes`."),
    NotBuilt("source.schema", _given, "a schema file", "Use `format: json` with `columns:`."),
    NotBuilt("source.registry", _given, "a schema registry", "Use `format: json` with `columns:`."),
    NotBuilt("source.explode", _given, "`explode`", "Use `explode: null`, and send one record for each."),
    NotBuilt(
        "source.deduplicate",
        lambda value: value == "root" or isinstance(value, dict),
        "deduplicating by anything but offsets",
        "Use `deduplicate: offset`.",
    ),
    NotBuilt("lookup", bool, "`lookup`", "Use `lookup: []`, and join before the topic."),
    NotBuilt(
        "stages",
        lambda value: isinstance(value, list) and len(value) > 1,
        "several stages",
        "Keep one stage, and let a second pipeline read its topic.",
    ),
    NotBuilt("stages.*.key", _given, "a stage's own `key`", "Use `source.key`."),
    NotBuilt("stages.*.window", _given, "windows", "Leave `window` out: state is kept per key."),
    NotBuilt("stages.*.reduce", lambda value: isinstance(value, dict), "aggregates", "Use `reduce: latest`."),
    NotBuilt("stages.*.reduce", _one_of("collect"), "`collect`", "Use `reduce: latest`."),
    NotBuilt(
        "stages.*.emit.on",
        _one_of("window_close", "time_limit", "threshold", "interval"),
        "`on: {}`",
        _UPDATE,
    ),
    *(
        NotBuilt(f"stages.*.emit.{name}", _given, f"`{name}`", "Leave it out. " + _UPDATE)
        for name in ("clock", "after", "every", "buffer", "count", "max_bytes", "since")
    ),
    NotBuilt("stages.*.emit.heartbeat", _given, "`heartbeat`", "Leave it out, or use `on: update`."),
    NotBuilt("stages.*.emit.state", _one_of("hash"), "`state: hash`", "Use `state: value`."),
    NotBuilt("stages.*.emit.equal", _one_of("bytes"), "`equal: bytes`", _EXACT),
    NotBuilt(
        "stages.*.emit.equal",
        lambda value: isinstance(value, dict) and bool(set(value) & {"within", "sql", "python", "bytes"}),
        "comparing in any but the exact way",
        _EXACT,
    ),
    *(
        NotBuilt(f"stages.*.emit.{name}", _given, f"`{name}`", _EXACT)
        for name in ("within", "sql", "python", "timestamp")
    ),
    NotBuilt("sinks.*.kind", _one_of("sql"), "`kind: sql`", "Use `kind: table` or `kind: kafka`."),
)


def not_built(data: Any) -> Iterator[tuple[Route, str, str]]:
    """Where `data` uses what is not built: the route, a message, a fix.

    The options of an emit strategy or sink that is itself not built are not reported one by one.
    """
    strangers: set[Route] = set()
    for row in NOT_BUILT:
        for route, value in _at(data, tuple(row.path.split(".")), ()):
            if not row.applies(value) or route[:-1] in strangers:
                continue
            if route[-1] in ("on", "kind"):
                strangers.add(route[:-1])
            what = row.what.format(value) if isinstance(value, str) else row.what
            yield route, f"not built yet: {what}", row.instead


def _at(data: Any, path: tuple[str, ...], route: Route) -> Iterator[tuple[Route, Any]]:
    """The values at a generic path."""
    if not path:
        yield route, data
    elif path[0] == "*" and isinstance(data, list):
        for at, item in enumerate(data):
            yield from _at(item, path[1:], (*route, at))
    elif isinstance(data, dict) and path[0] in data:
        yield from _at(data[path[0]], path[1:], (*route, path[0]))


@dataclass(frozen=True)
class Grammar:
    """What messages about a kind of file need to know of it.

    `choices`: where a field chooses between forms, and that field. `free`: mappings whose names are the
    user's own. `others`: fields that are known, but have no example.
    """

    examples: Mapping[str, str]
    choices: Mapping[str, str]
    free: tuple[str, ...]
    others: tuple[str, ...] = ()

    def generic(self, route: Route) -> str:
        """The path of a route, with `*` for list positions and for the user's own names."""
        path = ""
        for part in route:
            name = "*" if isinstance(part, int) or path in self.free else part
            path = f"{path}.{name}" if path else name
        return path

    def fields(self, parent: str) -> list[str]:
        """The names that are known under a generic path."""
        prefix = f"{parent}." if parent else ""
        paths = (*self.examples, *self.others)
        names = (path.removeprefix(prefix) for path in paths if path.startswith(prefix))
        return list(dict.fromkeys(name for name in names if "." not in name and name != "*"))

    def example(self, route: Route) -> str | None:
        """How the field is written, or the nearest field around it that has an example."""
        paths = (self.generic(route[:size]) for size in range(len(route), 0, -1))
        return next((self.examples[path] for path in paths if path in self.examples), None)


PIPELINE = Grammar(
    examples=EXAMPLES,
    choices={"stages.*.emit": "on", "sinks.*": "kind"},
    free=("stages.*.select",),
    others=tuple(row.path for row in NOT_BUILT),
)
