"""The parts of the grammar that types do not express: an example of every field, and how messages
name a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.kernel import STRATEGIES, Bound, Unchanged
from tidegate.kernel.options import examples, options_of
from tidegate.kernel.strategies.change import EQUIVALENCES
from tidegate.kernel.windows import WINDOWS
from tidegate.sinks.registry import MODELS
from tidegate.spec.tree import Route

EXAMPLES = {
    "pipeline": "pipeline: availability",
    "generation": "generation: 1",
    "schedule": 'schedule: "*/5 * * * *"',
    "schedule.assets": 'assets: ["tidegate://orders"]',
    "schedule.when": "when: any",
    "schedule.cron": 'cron: "0 * * * *"',
    "timezone": "timezone: Europe/Berlin",
    "start_date": "start_date: 2026-01-31",
    "start_over": "start_over: true",
    "catchup": "catchup: true",
    "deadline": "deadline: 30m",
    "tasks": "tasks: one",
    "source": "source: {topics: [stock], format: json, columns: …}",
    "source.connection": "connection: shop",
    "source.topics": "topics: [stock]",
    "source.format": "format: json",
    "source.schema": "schema: schemas/stock.avsc",
    "source.message": "message: shop.Stock",
    "source.registry": "registry: {strategy: topic_name}",
    "source.registry.connection": "connection: shop",
    "source.registry.strategy": "strategy: topic_name",
    "source.registry.subjects": "subjects: [shop.Stock]",
    "source.columns": 'columns: "storeId string, id bigint, quantity int"',
    "source.csv": 'csv: {delimiter: ";"}',
    "source.csv.delimiter": 'delimiter: ";"',
    "source.csv.quote": 'quote: "\'"',
    "source.csv.escape": "escape: '\\'",
    "source.csv.null_text": "null_text: 'NULL'",
    "source.explode": "explode: items",
    "source.aliases": "aliases: {quantity: [qty]}",
    "source.aliases.*": "quantity: [qty]",
    "source.key_format": "key_format: avro",
    "source.key_columns": 'key_columns: "storeId string, id bigint"',
    "source.key_registry": "key_registry: {connection: shop}",
    "source.key_registry.connection": "connection: shop",
    "source.key_registry.strategy": "strategy: topic_name",
    "source.key_registry.subjects": "subjects: [shop.Stock]",
    "source.key": "key: [storeId, id]",
    "source.timestamp": "timestamp: record",
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
    "stages": "stages: [{name: availability, emit: {on: change}}]",
    "stages.*.name": "name: availability",
    "stages.*.key": "key: [storeId]",
    "stages.*.window": "window: {tumbling: 1h, grace: 10m}",
    **examples("stages.*.window", WINDOWS),
    "stages.*.reduce": "reduce: latest",
    "stages.*.reduce.*": 'total: "sum(quantity)"',
    "stages.*.select": 'select: {isAvailable: "quantity > 0"}',
    "stages.*.select.*": 'isAvailable: "quantity > 0"',
    "stages.*.aliases": "aliases: {isAvailable: [available]}",
    "stages.*.aliases.*": "isAvailable: [available]",
    "stages.*.emit": "emit: {on: change, equal: exact}",
    "stages.*.emit.on": "on: change",
    **examples("stages.*.emit", STRATEGIES.values()),
    **examples("stages.*.emit.equal", EQUIVALENCES),
    "stages.*.emit.equal.within.*": "price: 0.5",
    **examples("stages.*.emit.buffer", [Bound]),
    "stages.*.where": 'where: "isAvailable"',
    "stages.*.unchanged": "unchanged: {text: __debezium_unavailable_value}",
    **examples("stages.*.unchanged", [Unchanged]),
    "stages.*.on_error": "on_error: quarantine",
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
    "quality.*.suite": "suite: availability",
    "quality.*.checkpoint": "checkpoint: availability",
    "quality.*.stage": "stage: availability",
    "quality.*.sink": 'sink: "kafka:availability"',
    "quality.*.of": "of: state",
    "quality.*.on_failure": "on_failure: stop",
    "quality.*.modules": "modules: [shop.expectations]",
    "quarantine": "quarantine: {alert: {share: 1%}, stop: {share: 20%}}",
    "quarantine.alert": "alert: {share: 1%, count: 1000}",
    "quarantine.alert.share": "share: 1%",
    "quarantine.alert.count": "count: 1000",
    "quarantine.stop": "stop: {share: 20%}",
    "quarantine.stop.share": "share: 1%",
    "quarantine.stop.count": "count: 1000",
    "quarantine.connection": "connection: shop",
    "quarantine.topic": "topic: stock-dead",
    "quarantine.keep": "keep: 90d",
    "late": "late: {alert: {share: 1%}, stop: {share: 50%}}",
    "late.alert": "alert: {share: 1%, count: 1000}",
    "late.alert.share": "share: 1%",
    "late.alert.count": "count: 1000",
    "late.stop": "stop: {share: 50%}",
    "late.stop.share": "share: 1%",
    "late.stop.count": "count: 1000",
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
    """

    examples: Mapping[str, str]
    choices: Mapping[str, tuple[str, ...]]
    free: tuple[str, ...]

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

    def example(self, route: Route) -> str | None:
        """Return the example of the field at a route, or of the nearest field around it that has one."""
        # From the field outwards, so that the nearest example is found first.
        paths = (self.generic(route[:size]) for size in range(len(route), 0, -1))
        return next((self.examples[path] for path in paths if path in self.examples), None)


PIPELINE = Grammar(
    examples=EXAMPLES,
    choices={
        "schedule": (),
        "source.deduplicate": (),
        "stages.*.unchanged": (),
        "stages.*.window": tuple(options_of(window)[0].written for window in WINDOWS),
        "stages.*.reduce": (),
        "stages.*.emit": ("on",),
        "stages.*.emit.equal": tuple(examples("", EQUIVALENCES)),
        "sinks.*": ("kind",),
        **dict.fromkeys(_CALLBACKS, ()),
        "quality": ("checkpoint",),
        "quality.*": ("checkpoint",),
    },
    free=(
        *("source.aliases", "stages.*.select", "stages.*.reduce", "stages.*.aliases"),
        *("stages.*.emit.equal.within", "airflow.spark.conf"),
        *(f"{path}.with" for path in _CALLBACKS),
    ),
)

DEFAULTS = Grammar(
    examples={"dag_id_prefix": "dag_id_prefix: shop_"}
    | {path: example for path, example in EXAMPLES.items() if path.split(".")[0] == "airflow"},
    choices=dict.fromkeys(_CALLBACKS, ()),
    free=(*(f"{path}.with" for path in _CALLBACKS), "airflow.spark.conf"),
)
"""The grammar of `defaults.yaml`."""
