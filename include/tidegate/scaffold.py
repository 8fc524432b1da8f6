"""New pipelines: make a file, a case that it passes and a suite from a user's draft. It never prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tidegate.errors import SettingsInvalid
from tidegate.kernel import STRATEGIES
from tidegate.model.columns import Column, parse_columns, parse_type
from tidegate.model.names import RESERVED, quote
from tidegate.sinks.registry import MODELS
from tidegate.yaml.load import parse_pipeline

WAYS = {name: kind.sample for name, kind in sorted(STRATEGIES.items()) if kind.sample is not None}
"""Ways to emit that a new pipeline can begin with -> its stage and its case."""
_PLAIN = re.compile(r"(?!(?:true|false|null)$)[a-z_][a-z0-9_-]*", re.IGNORECASE | re.ASCII)
SCHEMA_FILE = "pipeline.schema.json"
"""The name of the JSON Schema of the grammar, beside the pipeline files: editors complete and check by it."""
_PIPELINE_TEXT = """\
# yaml-language-server: $schema={schema}
pipeline: {name}
generation: 1
schedule: {schedule}
source:
  topics: [{topic}]
  format: json
  columns: {columns}
{key}stages:
  - name: {name}
{stage}sinks:
  - {{kind: {sink}, {field}: {target}{with_key}}}
"""
_BOUNDS = """\
# If more of a batch's records than `alert` cannot be used, tidegate alerts. If more than `stop`, the batch
# halts before anything of it is visible.
quarantine: {alert: {share: 1%}, stop: {share: 50%}}
"""
_QUALITY = """\
quality:
  suite: {name}
  on_failure: stop
"""
_RECORD_KEY = "k1"
# Two different values of each type whose values have exactly one spelling in JSON and in a key's text.
_VALUES: dict[str, tuple[Any, Any]] = {
    "string": ("a", "b"),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (1, 2)),
    **dict.fromkeys(("double", "float"), (0.5, 1.5)),
    "boolean": (True, False),
    "date": ("2026-01-31", "2026-02-01"),
}
# Values of the other types that a key can have. Their texts in a key can differ from what a person writes.
_KEY_VALUES = {"timestamp": "2026-01-31T10:30:00Z", "timestamp_ntz": "2026-01-31T10:30:00", "decimal": 1}
_CASE_TEXT = """\
# Run it with `tidegate test`. If you change the pipeline, change what the case expects; add cases for what
# matters.
cases:
  - name: {name}
    pipeline: ../../{pipeline}.yaml
    input:
{input}    expect:
{expected}"""


@dataclass(frozen=True)
class Draft:
    """The choices for a new pipeline with one topic, one stage and one sink.

    Args:
        columns: The source's columns, as Spark's DDL.
        key: The columns of the key. If empty, the pipeline uses the key of the Kafka record.
        way: A way to emit of `WAYS`.
        target: The topic, the SQL table or the path of the sink. None: one with the name of the pipeline.
        schedule: Airflow's schedule; None if only triggers start the DAG.

    Example: `Draft("stock", "stock", "sku STRING, left INT", key=("sku",), target="stock-changes")`
    """

    name: str
    topic: str
    columns: str
    key: tuple[str, ...] = ()
    way: str = "change"
    sink: str = "kafka"
    target: str | None = None
    schedule: str | None = None
    has_suite: bool = True

    @cached_property
    def source_columns(self) -> tuple[Column, ...]:
        """The parsed columns. Raises SettingsInvalid if the DDL has a mistake."""
        columns, faults = parse_columns(self.columns)
        if faults:
            what = "; ".join(fault.message for fault in faults)
            raise SettingsInvalid(f"The columns cannot be used: {what}", faults[0].fix)
        return columns

    @property
    def emitted(self) -> dict[str, Column]:
        """Name in the emission -> source column: the columns beside the key, or all if the key has all
        columns.
        """
        beside = tuple(column for column in self.source_columns if column.name not in self.key)
        return {_emitted_name(column.name): column for column in beside or self.source_columns}

    def kind_of(self, name: str) -> str:
        """Return the kind of a source column's type, such as `bigint`.

        An unknown column has the kind "": the grammar reports it with line and fix, so no error is raised
        here.
        """
        types = {column.name: column.type for column in self.source_columns}
        return parse_type(types[name]).kind if name in types else ""


def _emitted_name(name: str) -> str:
    """Return the column's name in an emission: another one if the outbox already has a column of
    this name.
    """
    return f"event_{name}" if name.lower() in RESERVED else name


def pipeline_texts(draft: Draft, pipelines: Path, expectations: Path) -> dict[Path, str]:
    """Return the text of each file: the pipeline, a case that it passes, and its suite if the draft has one.

    Nothing is written: the caller decides what happens to files that exist.

    Args:
        draft: The choices of the user.
        pipelines: The folder of the pipeline files; the case goes into `cases/NAME` below it.
        expectations: The folder of the quality suites.

    Raises SettingsInvalid or PipelineInvalid if the draft is not a valid pipeline.
    """
    file = pipelines / f"{draft.name}.yaml"
    text = pipeline_text(draft)
    parse_pipeline(text, str(file))
    texts = {file: text, pipelines / "cases" / draft.name / "first.yaml": case_text(draft)}
    if draft.has_suite:
        texts[expectations / f"{draft.name}.json"] = _suite_text(draft)
    return texts


def _suite_text(draft: Draft) -> str:
    """Return a suite of Great Expectations: each emission has a key, its columns, and a timestamp."""
    columns = ("key", "timestamp", *draft.key)
    expectations = [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": column}, "meta": {}}
        for column in columns
    ]
    return json.dumps({"name": draft.name, "expectations": expectations, "meta": {}}, indent=2) + "\n"


def flow(value: Any) -> str:
    """Return a JSON value as YAML's flow style.

    >>> flow({"storeId": "s1", "tags": ["a", "b"], "n": 1})
    '{storeId: s1, tags: [a, b], n: 1}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(name)}: {flow(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and "'" not in value and '"' in value and value.isprintable():
        return f"'{value}'"
    # Without these checks YAML would read `true`, `null` or `1` as something else than the text.
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def pipeline_text(draft: Draft) -> str:
    """Return the text of the pipeline file.

    The choices are written as they are, without a check: `parse_pipeline` reports their mistakes with line
    and fix.
    """
    sink = MODELS[draft.sink]
    text = _PIPELINE_TEXT.format(
        schema=SCHEMA_FILE,
        name=draft.name,
        schedule=flow(draft.schedule),
        topic=flow(draft.topic),
        columns=flow(draft.columns),
        key=f"  key: {flow(draft.key)}\n" if draft.key else "",
        stage=WAYS[draft.way].stage.replace("{select}", f"select: {flow(_selection(draft))}"),
        sink=draft.sink,
        field=sink.target_field,
        target=flow(draft.target or sink.new_target(draft.name)),
        with_key=", with_key: true" if draft.key else "",
    )
    return text + _BOUNDS + (_QUALITY.format(name=draft.name) if draft.has_suite else "")


def _selection(draft: Draft) -> dict[str, str]:
    """Return the `select` that emits each column unchanged, quoted if its name is not an identifier."""
    names = {name: column.name for name, column in draft.emitted.items()}
    return {name: column if column.isidentifier() else quote(column) for name, column in names.items()}


def case_text(draft: Draft) -> str:
    """Return the text of a case file that the new pipeline passes."""
    return _CASE_TEXT.format(
        name=WAYS[draft.way].case,
        pipeline=draft.name,
        input="".join(f"      - {flow(step)}\n" for step in _input(draft)),
        expected="".join(f"      {line}\n" for line in _expected(draft)),
    )


def _input(draft: Draft) -> Iterator[dict[str, Any]]:
    """Yield the case's records, and a tick if the way to emit depends on time."""
    for record, timestamp_ms in _records(draft):
        key = {} if draft.key else {"key": _RECORD_KEY}
        yield {**key, "value": record, "timestamp": timestamp_ms}
    if (tick_ms := WAYS[draft.way].tick_ms) is not None:
        yield {"tick": tick_ms}


def _records(draft: Draft) -> list[tuple[dict[str, Any], int]]:
    first, second = _record(draft, 0), _record(draft, 1)
    *earlier_ms, last_ms = WAYS[draft.way].times_ms
    return [*((first, time_ms) for time_ms in earlier_ms), (second, last_ms)]


def _record(draft: Draft, variant: int) -> dict[str, Any]:
    """Return a record of the case's key. `variant`: 0 or 1, which of two values its columns beside the key
    have.

    A column whose values have several spellings is left out, so that the expected text is certain.
    """
    values = {}
    for column in draft.source_columns:
        kind, is_key = draft.kind_of(column.name), column.name in draft.key
        if kind in _VALUES:
            values[column.name] = _VALUES[kind][0 if is_key else variant]
        elif is_key:
            values[column.name] = _KEY_VALUES[kind]
    return values


def _expected(draft: Draft) -> Iterator[str]:
    if any(draft.kind_of(name) not in _VALUES for name in draft.key):
        yield "# Run `tidegate simulate` to see the text of this key and what is emitted for it."
        yield "quarantined: 0"
        return
    emissions = WAYS[draft.way].emissions(*(_emitted(draft, _record(draft, variant)) for variant in (0, 1)))
    yield "emissions:"
    yield f"  {flow(_key(draft))}:"
    yield from (f"    - {flow(emission)}" for emission in emissions)
    if WAYS[draft.way].suppresses:
        yield f"suppressed: {len(WAYS[draft.way].times_ms) - len(emissions)}"


def _emitted(draft: Draft, record: dict[str, Any]) -> dict[str, Any]:
    return {name: record.get(column.name) for name, column in draft.emitted.items()}


def _key(draft: Draft) -> str:
    """Return the key's text: the value of a single column, or a compact JSON object of several columns."""
    if not draft.key:
        return _RECORD_KEY
    record = _record(draft, 0)
    values = {name: record[name] for name in draft.key}
    if len(values) > 1:
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    (value,) = values.values()
    return value if isinstance(value, str) else json.dumps(value)
