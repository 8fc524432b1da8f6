"""An example of each field, and the messages for mistakes: `as_problems` names the line and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidegate.errors import Problem
from tidegate.formats.csv import Csv
from tidegate.kernel import STRATEGIES, Bound, Join, TimeToLive, Unchanged
from tidegate.kernel.aggregates.python import PythonAggregate
from tidegate.kernel.options import examples, options_of
from tidegate.kernel.strategies.any_of import TRIGGERS, AnyOf
from tidegate.kernel.strategies.change import EQUIVALENCES
from tidegate.kernel.strategies.window_close import Early
from tidegate.kernel.windows import WINDOWS
from tidegate.model.mistakes import MISTAKE, did_you_mean, faults_of, listed, shown
from tidegate.sinks.registry import MODELS
from tidegate.yaml.tree import Route, Tree

_STRATEGIES = examples("stages.*.emit", STRATEGIES.values())

EXAMPLES = {
    "pipeline": "pipeline: availability",
    "generation": "generation: 1",
    "schedule": 'schedule: "*/5 * * * *"',
    "schedule.assets": 'assets: ["tidegate://orders"]',
    "schedule.when": "when: any",
    "schedule.cron": 'cron: "0 * * * *"',
    "schedule.on_data": "on_data: {records: 10_000, or_after: 1m}",
    "schedule.on_data.records": "records: 10_000",
    "schedule.on_data.or_after": "or_after: 1m",
    "timezone": "timezone: Europe/Berlin",
    "start_date": "start_date: 2026-01-31",
    "start_over": "start_over: true",
    "catchup": "catchup: true",
    "deadline": "deadline: 30m",
    "tasks": "tasks: one",
    "source": "source: {topics: [stock], format: json, columns: …}",
    "sources": "sources: {orders: {topics: [orders], …}, payments: {topics: [payments], …}}",
    "sources.*": "orders: {topics: [orders], format: json, columns: …}",
    "source.connection": "connection: shop",
    "source.topics": "topics: [stock]",
    "source.topics.pattern": 'pattern: "orders-.*"',
    "source.format": "format: json",
    "source.schema": "schema: schemas/stock.avsc",
    "source.message": "message: shop.Stock",
    "source.registry": "registry: {strategy: topic_name}",
    "source.registry.connection": "connection: shop",
    "source.registry.strategy": "strategy: topic_name",
    "source.registry.subjects": "subjects: [shop.Stock]",
    "source.columns": 'columns: "storeId string, id bigint, quantity int"',
    "source.coerce": "coerce: true",
    "source.csv": 'csv: {delimiter: ";"}',
    **examples("source.csv", [Csv]),
    "source.explode": "explode: items",
    "source.metadata": "metadata: [topic, partition, offset]",
    "source.metadata.*": "kafka_topic: topic",
    "source.headers": "headers: {traceId: {name: x-trace-id, type: string}}",
    "source.headers.*": "traceId: string",
    "source.headers.*.name": "name: x-trace-id",
    "source.headers.*.type": "type: string",
    "source.filter": "filter: \"type = 'order'\"",
    "source.aliases": "aliases: {quantity: [qty]}",
    "source.aliases.*": "quantity: [qty]",
    "source.key_format": "key_format: avro",
    "source.key_columns": 'key_columns: "storeId string, id bigint"',
    "source.key_registry": "key_registry: {connection: shop}",
    "source.key": "key: [storeId, id]",
    "source.null_key": "null_key: keep",
    "source.timestamp": "timestamp: record",
    "source.timestamp.column": "column: at",
    "source.timestamp.format": 'format: "dd.MM.yyyy HH:mm:ss"',
    "source.timestamp.timezone": "timezone: Europe/Berlin",
    "source.timestamp.zoneless": "zoneless: refuse",
    "source.deduplicate": "deduplicate: offset",
    "source.deduplicate.columns": "columns: [eventId]",
    "source.deduplicate.keep": "keep: 1h",
    "source.sequence": 'sequence: {source: "lsn bigint", keep: 7d}',
    "source.sequence.columns": "columns: [version]",
    "source.sequence.source": 'source: "lsn bigint"',
    "source.sequence.keep": "keep: 7d",
    "source.max_records": "max_records: 5_000_000",
    "source.start": "start: earliest",
    "lookup": "lookup: [{table: stores/current, on: [storeId], columns: [region]}]",
    "lookup.*.table": "table: stores/current",
    "lookup.*.on": "on: [storeId]",
    "lookup.*.columns": "columns: [region]",
    "stages.*.expected": "expected: {table: devices/current, key: [deviceId]}",
    "stages.*.expected.table": "table: devices/current",
    "stages.*.expected.key": "key: [deviceId]",
    "lookup.*.on_change": "on_change: emit",
    "stages": "stages: [{name: availability, emit: {on: change}}]",
    "stages.*.name": "name: availability",
    "stages.*.join": "join: {left: orders, right: payments, within: 10m}",
    **examples("stages.*.join", [Join]),
    "stages.*.from": "from: source",
    "stages.*.key": "key: [storeId]",
    "stages.*.filter": 'filter: "quantity > 0"',
    "stages.*.window": "window: {tumbling: 1h, grace: 10m}",
    **examples("stages.*.window", WINDOWS),
    "stages.*.reduce": "reduce: latest",
    "stages.*.reduce.*": 'total: "sum(quantity)"',
    **examples("stages.*.reduce.*", [PythonAggregate]),
    "stages.*.select": 'select: {isAvailable: "quantity > 0"}',
    "stages.*.select.*": 'isAvailable: "quantity > 0"',
    "stages.*.aliases": "aliases: {isAvailable: [available]}",
    "stages.*.aliases.*": "isAvailable: [available]",
    "stages.*.emit": "emit: {on: change, equal: exact}",
    "stages.*.emit.on": "on: change",
    **_STRATEGIES,
    **examples("stages.*.emit", [AnyOf]),
    "stages.*.emit.any.*.on": "on: change",
    # A trigger is described as the strategy that it is, with the same examples.
    **{
        path.replace(".emit.", ".emit.any.*.", 1): _STRATEGIES[path]
        for path in examples("stages.*.emit", TRIGGERS.values())
    },
    **examples("stages.*.emit.any.*.equal", EQUIVALENCES),
    "stages.*.emit.any.*.equal.within.*": "price: 0.5",
    **examples("stages.*.emit.any.*.buffer", [Bound]),
    **examples("stages.*.emit.equal", EQUIVALENCES),
    "stages.*.emit.equal.within.*": "price: 0.5",
    **examples("stages.*.emit.buffer", [Bound]),
    **examples("stages.*.emit.early", [Early]),
    "stages.*.ttl": "ttl: 7d",
    **examples("stages.*.ttl", [TimeToLive]),
    "stages.*.where": 'where: "isAvailable"',
    "stages.*.retract": "retract: true",
    "stages.*.unchanged": "unchanged: {text: __debezium_unavailable_value}",
    **examples("stages.*.unchanged", [Unchanged]),
    "stages.*.on_error": "on_error: quarantine",
    "stages.*.on_late": "on_late: quarantine",
    "sinks": "sinks: [{kind: kafka, topic: availability}]",
    "sinks.*.kind": "kind: kafka",
    "sinks.*.stage": "stage: availability",
    "sinks.*.with_key": "with_key: true",
    **{f"sinks.*.{name}": text for sink in MODELS.values() for name, text in sink.examples.items()},
    "quality": "quality: {suite: availability, on_failure: stop}",
    "quality.suite": "suite: availability",
    "quality.checkpoint": "checkpoint: availability",
    "quality.stage": "stage: availability",
    "quality.sink": 'sink: "kafka:availability"',
    "quality.of": "of: state",
    "quality.on_failure": "on_failure: stop",
    "quality.modules": "modules: [shop.expectations]",
    "quarantine": "quarantine: {alert: {share: 1%}, stop: {share: 20%}}",
    "quarantine.alert": "alert: {share: 1%, count: 1000}",
    "quarantine.stop": "stop: {share: 20%}",
    "quarantine.connection": "connection: shop",
    "quarantine.topic": "topic: stock-dead",
    "outboxes": "outboxes: {keep: 90d}",
    "outboxes.keep": "keep: 90d",
    "quarantine.keep": "keep: 90d",
    "late": "late: {alert: {share: 1%}, stop: {share: 50%}}",
    "late.alert": "alert: {share: 1%, count: 1000}",
    "late.stop": "stop: {share: 50%}",
    "freshness": "freshness: {p95: 5m}",
    "freshness.p95": "p95: 5m",
    "airflow": "airflow: {owner: shop, pool: spark, retries: 5}",
    "airflow.owner": "owner: shop",
    "airflow.tags": "tags: [shop, stock]",
    "airflow.pool": "pool: spark",
    "airflow.queue": "queue: spark",
    "airflow.retries": "retries: 5",
    "airflow.retry_delay": "retry_delay: 30s",
    "airflow.task_timeout": "task_timeout: 30m",
    "airflow.run_timeout": "run_timeout: 1h",
    "airflow.on_task_failure": 'on_task_failure: "shop.alerts:page"',
    "airflow.on_task_retry": 'on_task_retry: "shop.alerts:note"',
    "airflow.on_run_failure": 'on_run_failure: "shop.alerts:page"',
    "airflow.on_run_success": 'on_run_success: "shop.alerts:note"',
    "airflow.on_missed_deadline": 'on_missed_deadline: "shop.alerts:page"',
    "airflow.on_quality": 'on_quality: "shop.alerts:quality"',
    "airflow.on_quarantine": 'on_quarantine: "shop.alerts:page"',
    "airflow.on_freshness": 'on_freshness: "shop.alerts:page"',
    "airflow.approve_promotion": "approve_promotion: true",
    "airflow.spark": "spark: {driver_memory: 2g, executor_memory: 4g, executors: 4}",
    "airflow.spark.connection": "connection: spark_large",
    "airflow.spark.driver_memory": "driver_memory: 2g",
    "airflow.spark.executor_memory": "executor_memory: 4g",
    "airflow.spark.executor_cores": "executor_cores: 2",
    "airflow.spark.executors": "executors: 4",
    "airflow.spark.conf": "conf: {spark.executor.memoryOverhead: 1g}",
}
"""Generic path -> an example, for every field of the grammar."""


def _of_sources(paths: Iterable[str]) -> dict[str, str]:
    """Return path -> the same path in an entry of `sources`, for the paths of `source`."""
    inner = (path for path in paths if path.startswith("source."))
    return {path: path.replace("source.", "sources.*.", 1) for path in inner}


for _bound in ("quarantine.alert", "quarantine.stop", "late.alert", "late.stop"):
    EXAMPLES |= {f"{_bound}.share": "share: 1%", f"{_bound}.count": "count: 1000"}
# parts that stand at two places have the same fields at both
for _part, _same in (("source.registry", "source.key_registry"), ("quality", "quality.*")):
    EXAMPLES |= {
        path.replace(_part, _same, 1): text for path, text in EXAMPLES.items() if path.startswith(f"{_part}.")
    }
EXAMPLES |= {path: EXAMPLES[single] for single, path in _of_sources(EXAMPLES).items()}


def _options_by_name(declared: Mapping[str, type]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(option.written for option in options_of(part)) for name, part in declared.items()}


_SOURCE_CHOICES = ("source.topics", "source.deduplicate", "source.timestamp")

# Each callback can be a function or a notifier with fields of its own.
_CALLBACKS = tuple(path for path in EXAMPLES if re.fullmatch(r"airflow\.on_\w+", path))
for _path in _CALLBACKS:
    EXAMPLES[f"{_path}.notifier"] = 'notifier: "shop.alerts:Pager"'
    EXAMPLES[f"{_path}.with"] = "with: {text: '{{ cause }}'}"


@dataclass(frozen=True)
class Grammar:
    """The facts about a kind of file that its messages need.

    Args:
        examples: Generic path -> how the field is written.
        choices: Generic path of a part with several forms -> the fields that decide which form it is. A
            single field decides by its value; of several, the one that is written decides.
        free: Generic paths of mappings whose names the user chooses.
        forms: Generic path of a part whose single field decides -> value of that field -> the fields that go
            with it.
    """

    examples: Mapping[str, str]
    choices: Mapping[str, tuple[str, ...]]
    free: tuple[str, ...]
    forms: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def generic(self, route: Route) -> str:
        """Return the path of a route, with `*` for list positions and for names that the user chooses.

        Example: `("sinks", 0, "topic")` is `sinks.*.topic`.
        """
        path = ""
        for part in route:
            # `path` is the parent's generic path so far: its names are free if the user chooses them.
            name = "*" if isinstance(part, int) or path in self.free else part
            path = f"{path}.{name}" if path else name
        return path

    def fields(self, parent: str) -> list[str]:
        """Return the names of the fields directly below a generic path."""
        prefix = f"{parent}." if parent else ""
        names = (path.removeprefix(prefix) for path in self.examples if path.startswith(prefix))
        return list(dict.fromkeys(name for name in names if "." not in name and name != "*"))

    def fields_beside(self, parent: str, mapping: Mapping[str, Any]) -> list[str]:
        """Return the names of `fields` that go with the form that a mapping of the file has."""
        fields = self.fields(parent)
        for chooser in self.choices.get(parent, ()):
            form = self.forms.get(parent, {}).get(str(mapping.get(chooser)))
            if form is not None:
                return [name for name in fields if name in (chooser, *form)]
        return fields

    def misplaced(self, parent: str, name: str) -> str | None:
        """Return the fix for a field that belongs to a part of this one, or to a part around it; None for
        a name that no such part has.

        Example: of `grace`, written at a stage, the fix names `window`.
        """
        children = [f"{parent}.{field}" if parent else field for field in self.fields(parent)]
        around = [parent.rsplit(".", level)[0] for level in range(1, parent.count(".") + 1)]
        holders = [part for part in children if name in self.fields(part)]
        holders = holders or [part for part in (*around, "") if name in self.fields(part)][:1]
        # only the top of the file has no name
        places = [
            f"`{part.removesuffix('.*').split('.')[-1]}`" if part else "the top of the file"
            for part in holders
        ]
        return f"It belongs to {' or '.join(places)}." if places else None

    def example(self, route: Route) -> str | None:
        """Return the example of the field at a route, or of the nearest field around it that has one."""
        # From the field outwards, so that the nearest example is found first.
        paths = (self.generic(route[:size]) for size in range(len(route), 0, -1))
        return next((self.examples[path] for path in paths if path in self.examples), None)


PIPELINE = Grammar(
    examples=EXAMPLES,
    choices={
        "schedule": ("on_data",),
        **dict.fromkeys(_SOURCE_CHOICES, ()),
        **dict.fromkeys(_of_sources(_SOURCE_CHOICES).values(), ()),
        "stages.*.unchanged": (),
        "stages.*.ttl": (),
        "stages.*.window": tuple(options_of(window)[0].written for window in WINDOWS),
        "stages.*.reduce": (),
        "stages.*.reduce.*": ("python",),
        "stages.*.emit": ("on",),
        "stages.*.emit.any.*": ("on",),
        "stages.*.emit.any.*.equal": tuple(examples("", EQUIVALENCES)),
        "stages.*.emit.equal": tuple(examples("", EQUIVALENCES)),
        "sinks.*": ("kind",),
        **dict.fromkeys(_CALLBACKS, ()),
        "quality": ("checkpoint",),
        "quality.*": ("checkpoint",),
    },
    free=(
        *("source.aliases", "sources", "sources.*.aliases"),
        *("stages.*.select", "stages.*.reduce", "stages.*.aliases"),
        *("stages.*.emit.equal.within", "stages.*.emit.any.*.equal.within", "airflow.spark.conf"),
        *(f"{path}.with" for path in _CALLBACKS),
    ),
    forms={
        "sinks.*": {
            kind: tuple(part.alias or name for name, part in sink.model_fields.items())
            for kind, sink in MODELS.items()
        },
        "stages.*.emit": _options_by_name(STRATEGIES),
        "stages.*.emit.any.*": _options_by_name(TRIGGERS),
    },
)

DEFAULTS = Grammar(
    examples={"dag_id_prefix": "dag_id_prefix: shop_"}
    | {path: example for path, example in EXAMPLES.items() if path.split(".")[0] == "airflow"},
    choices=dict.fromkeys(_CALLBACKS, ()),
    free=(*(f"{path}.with" for path in _CALLBACKS), "airflow.spark.conf"),
)
"""The grammar of `defaults.yaml`."""

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
    """Return pydantic's location without tags of unions, and with the field that decides a choice."""
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
    """Return message and fix of an unknown field: misspelt, in the wrong place, or of another form."""
    parent, name = grammar.generic(route[:-1]), str(route[-1])
    fields, mapping = grammar.fields(parent), _at(data, route[:-1])
    if name in fields and parent in grammar.choices:
        chooser = next((field for field in grammar.choices[parent] if field in mapping), name)
        return f"`{name}` does not go with `{chooser}: {mapping.get(chooser)}`", "Leave it out."
    place = f" in `{route[-2]}`" if len(route) > 1 and isinstance(route[-2], str) else ""
    own = grammar.fields_beside(parent, mapping)
    fix = did_you_mean(name, own, f"Known are {listed(own)}." if own else "Leave it out.")
    return f"unknown field `{name}`{place}", grammar.misplaced(parent, name) or fix


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
