"""Case files: a pipeline, its input, and the expected emissions. JSON or YAML, one case or a list under
`cases`.

`read_cases` checks the form of a case without its pipeline, so a case can be valid even if its pipeline is
not.

Emissions are listed under the key's text: the record's own key; the text of a single key column; or a compact
JSON object of several key columns in declared order, `{"storeId":"s1","id":17}`; or `null`, for no key. Their
values have the stage's columns only, because a case has no sink that would add others.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, Discriminator, Field, StrictInt, Tag, ValidationError, model_validator

from tidegate.errors import PipelineInvalid, Problem
from tidegate.expressions.arrow import arrow_type
from tidegate.formats.registry import formats
from tidegate.formats.schemas import SchemaFault
from tidegate.model.columns import parse_type
from tidegate.model.mistakes import did_you_mean, listed, mistake, shown
from tidegate.model.names import SOURCE, repeated_name
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import with_suites
from tidegate.model.scope import Model
from tidegate.model.source import Source
from tidegate.model.sources import Sources, TopicPattern
from tidegate.yaml.grammar import Grammar, as_problems
from tidegate.yaml.load import load_pipeline, parse_tree
from tidegate.yaml.tree import Route, Tree, exact, exact_text, read, read_text

_GRAMMAR = Grammar(
    examples={
        "name": "name: a drop below zero is not available",
        "pipeline": "pipeline: ../../availability.yaml",
        "tables": "tables: {stores/current: [{storeId: s1, region: north}]}",
        "suites": "suites: {stock: [{type: expect_column_values_to_not_be_null, kwargs: {column: key}}]}",
        "input": "input: [{key: k, value: {quantity: 10}, timestamp: 1000}]",
        "input.*": "{key: k, value: {quantity: 10}, timestamp: 1000}",
        "input.*.key": "key: k",
        "input.*.value": "value: {quantity: 10}",
        "input.*.raw": "raw: 'not JSON'",
        "input.*.base64": "base64: AnMxAgo=",
        "input.*.timestamp": "timestamp: 1000",
        "input.*.topic": "topic: stock",
        "input.*.partition": "partition: 0",
        "input.*.offset": "offset: 17",
        "input.*.headers": "headers: {tidegate-source: stock/0/17}",
        "input.*.tick": "tick: 60000",
        "input.*.table": "table: stores/current",
        "input.*.rows": "rows: [{storeId: s1, region: south}]",
        "expect": "expect: {emissions: {k: [{value: {isAvailable: true}, timestamp: 1000}]}}",
        "expect.emissions": "emissions: {k: [{value: {isAvailable: true}, timestamp: 1000}]}",
        "expect.emissions.*.*.value": "value: {isAvailable: true}",
        "expect.emissions.*.*.timestamp": "timestamp: 1000",
        "expect.emissions.*.*.window": "window: [0, 60000]",
        "expect.stages": "stages: {changes: {emissions: {k: [{value: {isAvailable: true}}]}}}",
        "expect.stages.*": "changes: {emissions: {k: [{value: {isAvailable: true}}]}}",
        "expect.stages.*.emissions": "emissions: {k: [{value: {isAvailable: true}, timestamp: 1000}]}",
        "expect.stages.*.emissions.*.*.value": "value: {isAvailable: true}",
        "expect.stages.*.emissions.*.*.timestamp": "timestamp: 1000",
        "expect.stages.*.emissions.*.*.window": "window: [0, 60000]",
        "expect.late_dropped": "late_dropped: 1",
        "expect.deduplicated": "deduplicated: 1",
        "expect.quarantined": "quarantined: 1",
        "expect.removed": "removed: 1",
        "expect.suppressed": "suppressed: 1",
        "expect.refused": "refused: 1",
        "expect.expired": "expired: 1",
        "expect.error": "error: BufferFull",
    },
    choices={"input.*": ("tick", "table")},
    free=(
        "expect.emissions",
        "expect.stages",
        "expect.stages.*.emissions",
        "tables",
        "suites",
        "input.*.rows",
    ),
)
# `value: null` is a tombstone, so null cannot mean that the field is not written.
_ABSENT = object()

Rows = tuple[dict[str, Any], ...]
"""The rows of a lookup's table."""

Milliseconds = Annotated[StrictInt, Field(gt=-(2**45), lt=2**47)]
"""Milliseconds since 1970, of a year that both Python and Spark can represent."""


# as it is written


def _read_headers(written: Any) -> Any:
    """Read headers from a mapping, or from a list of [name, text]: Kafka allows a name several times."""
    pairs = list(written.items()) if isinstance(written, dict) else written
    if not isinstance(pairs, list) or not all(_is_header(pair) for pair in pairs):
        fix = "Write `headers: {name: text}` or `headers: [[name, text], [name, other text]]`."
        raise mistake("headers are names with texts", fix)
    return tuple(tuple(pair) for pair in pairs)


def _is_header(pair: Any) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(part, str) for part in pair)


def _read_base64(written: Any) -> bytes | None:
    if written is None:
        return None
    try:
        return base64.b64decode(written, validate=True)
    except (TypeError, ValueError):
        raise mistake(f"{shown(written)} is not base64", "Write for example `base64: AnMxAgo=`.") from None


class WrittenRecord(Model):
    """A record as a case writes it. Exactly one of `value`, `raw` and `base64` is given.

    Args:
        value: JSON, or null for a tombstone.
        raw: The text of the value, which need not be JSON.
        base64: The bytes of the value.
    """

    key: str | None = None
    value: Any = Field(default=_ABSENT)
    raw: str | None = None
    base64: Annotated[bytes | None, BeforeValidator(_read_base64)] = None
    timestamp: Milliseconds
    topic: str | None = None
    partition: Annotated[StrictInt, Field(ge=0, lt=2**31)] = 0
    offset: Annotated[StrictInt, Field(ge=0, lt=2**63)] | None = None
    headers: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_read_headers)] = Field(
        default={}  # type: ignore[arg-type]  # read like a written one
    )

    @model_validator(mode="after")
    def _one_value(self) -> WrittenRecord:
        given = {"value": self.value is not _ABSENT, "raw": self.raw is not None}
        given["base64"] = self.base64 is not None
        names = [f"`{name}`" for name, is_given in given.items() if is_given]
        if not names:
            raise mistake("`value` is missing", "Write `value: null` for a tombstone.")
        if len(names) > 1:
            raise mistake(f"{' and '.join(names)} are both given", "Keep one.")
        return self


class WrittenTick(Model):
    """The end of a batch, and its clock in epoch milliseconds."""

    tick: Milliseconds


class WrittenTable(Model):
    """The rows of a lookup's table from here on; a batch begins here."""

    table: str
    rows: tuple[dict[str, Any], ...]


def _kind(written: Any) -> str:
    kinds = [name for name in ("tick", "table") if isinstance(written, dict) and name in written]
    return kinds[0] if kinds else "record"


Step = Annotated[
    Annotated[WrittenRecord, Tag("record")]
    | Annotated[WrittenTick, Tag("tick")]
    | Annotated[WrittenTable, Tag("table")],
    Discriminator(_kind),
]


class Steps(Model):
    """The input of a case without the rest, for input that is read from JSON lines."""

    input: tuple[Step, ...]


class Emission(Model):
    """An expected emission.

    A null value is a deletion; a `timestamp` or `window` that is null is not compared.
    """

    value: Annotated[dict[str, Any] | None, BeforeValidator(exact)]
    timestamp: StrictInt | None = None
    window: tuple[StrictInt, StrictInt] | None = None


Emissions = dict[str, tuple[Emission, ...]]
"""Key -> its emissions, in order; keys that are not named must not emit."""


class StageExpectation(Model):
    """The expected emissions of a stage."""

    emissions: Emissions


Count = Annotated[StrictInt, Field(ge=0)] | None


class Expectation(Model):
    """The expected result of a case.

    Null is not compared. `emissions` are those of the last stage; `stages` has those of stages by name.
    """

    emissions: Emissions | None = None
    stages: dict[str, StageExpectation] = Field(default_factory=dict)
    late_dropped: Count = None
    deduplicated: Count = None
    quarantined: Count = None
    removed: Count = None
    suppressed: Count = None
    refused: Count = None
    expired: Count = None
    error: str | None = None

    @model_validator(mode="after")
    def _expects_something(self) -> Expectation:
        fields = [name for name in type(self).model_fields if name != "stages"]
        if not self.stages and all(getattr(self, name) is None for name in fields):
            raise mistake("nothing is expected", "Write `emissions: {}` if nothing may be emitted.")
        return self


def _path_or_mapping(written: Any) -> Any:
    if not isinstance(written, (str, dict)):
        fix = "Write a pipeline, or the path of its file from this one's folder."
        raise mistake(f"it has to be a pipeline or a path, not {shown(written)}", fix)
    return written


class WrittenCase(Model):
    """A case as it is written, with its pipeline unchecked."""

    name: str
    pipeline: Annotated[Any, BeforeValidator(_path_or_mapping)]
    tables: dict[str, tuple[dict[str, Any], ...]] = Field(default_factory=dict)
    suites: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    input: tuple[Step, ...]
    expect: Expectation


# as it is used


@dataclass(frozen=True)
class CaseRecord:
    """A Kafka record.

    `payload` has its value in bytes, None for a tombstone; `timestamp` is in epoch milliseconds.
    """

    key: str | bytes | None
    payload: bytes | None
    timestamp: int
    topic: str
    partition: int = 0
    offset: int = 0
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Tick:
    """The end of a batch, with the batch's clock in epoch milliseconds."""

    clock_ms: int


@dataclass(frozen=True)
class LookupRows:
    """The rows of a lookup's table from here on. A batch begins with it, since its plan pins the table."""

    table: str
    rows: tuple[Mapping[str, Any], ...]


CaseStep = CaseRecord | Tick | LookupRows


@dataclass(frozen=True)
class Case:
    """A case that can be run. `tables` maps the tables that lookups name to their rows."""

    name: str
    pipeline: Pipeline
    input: tuple[CaseStep, ...]
    expect: Expectation
    tables: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)


def load_cases(path: Path) -> list[Case]:
    """Load the cases of a file, ready to run.

    Raises PipelineInvalid with all problems of cases and pipelines.

    Args:
        path: The case file; paths of pipelines in it are relative to its folder.
    """
    cases = []
    problems: list[Problem] = []
    for tree, written in read_cases(path):
        try:
            cases.append(_case(tree, written, path.parent))
        except PipelineInvalid as error:
            problems += error.problems
    if problems:
        raise PipelineInvalid(problems)
    return cases


def read_cases(path: Path) -> list[tuple[Tree, WrittenCase]]:
    """Read the cases of a file, each with its place in the file. Their pipelines are not checked.

    Raises PipelineInvalid with all problems of the cases' form.

    Example: `[written.name for _, written in read_cases(Path("stock.yaml"))]`
    """
    cases = []
    problems: list[Problem] = []
    for tree in _split_cases(read(read_text(path), str(path))):
        try:
            cases.append((tree, WrittenCase.model_validate(tree.data)))
        except ValidationError as error:
            problems += as_problems(error, tree, grammar=_GRAMMAR)
    # Results are reported by name.
    if (again := repeated_name(written.name for _, written in cases)) is not None:
        tree = next(tree for tree, written in reversed(cases) if written.name == again)
        problems.append(tree.problem(("name",), f"{again!r} appears twice", "Name each case differently."))
    if problems:
        raise PipelineInvalid(problems)
    return cases


def parse_input(text: str, file: str, pipeline: Pipeline) -> tuple[CaseStep, ...]:
    """Parse JSON lines, each of which is a record, a tick or a table as in a case file.

    Args:
        text: The lines; blank ones are ignored.
        file: The name of the file in messages.
        pipeline: The pipeline that will read the records: its source gives the topic and the format.

    Raises PipelineInvalid with all problems of all lines.
    """
    values: list[Any] = []
    lines: dict[Route, int] = {}
    problems = []
    # Not `splitlines`, which also splits at characters that JSON texts may contain, such as U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            lines[("input", len(values))] = number
            try:
                values.append(read(line, "line.json").data)
            except PipelineInvalid as error:
                problems += [Problem(file, number, "input", p.message, p.fix) for p in error.problems]
    if problems:
        raise PipelineInvalid(problems)
    # One tree for all lines, so that mistakes are found and reported as in a case file.
    tree = Tree(file, {"input": values}, lambda: lines)
    try:
        return _input(tree, Steps.model_validate(tree.data).input, pipeline)
    except ValidationError as error:
        raise PipelineInvalid(as_problems(error, tree, grammar=_GRAMMAR)) from None


def _split_cases(tree: Tree) -> Iterable[Tree]:
    """Return the parts of the file that are cases: the whole file, or the items of `cases`."""
    if not isinstance(tree.data, dict) or "cases" not in tree.data:
        return [tree]
    problems = [
        tree.problem((name,), f"unknown field `{name}` beside `cases`", "Move it into each case.")
        for name in tree.data
        if name != "cases"
    ]
    cases = tree.data["cases"]
    if not isinstance(cases, list) or not cases:
        problems.append(
            tree.problem(("cases",), "it has to be a list of cases", "Write `cases: [{name: …}]`.")
        )
    if problems:
        raise PipelineInvalid(problems)
    return [tree.below("cases", at) for at in range(len(cases))]


def _case(tree: Tree, written: WrittenCase, folder: Path) -> Case:
    if isinstance(written.pipeline, str):
        pipeline = load_pipeline(folder / written.pipeline)
    else:
        # The pipeline has no text of its own in the case; any stable one will do for its hash.
        text = json.dumps(written.pipeline, sort_keys=True)
        pipeline = parse_tree(tree.below("pipeline"), text, in_case=True)
    stages = [stage.name for stage in pipeline.outlets]
    fix = f"Write {listed(stages)}."
    _require_named(tree, ("expect", "stages"), written.expect.stages, stages, "there is no stage `{}`", fix)
    if problems := _table_problems(tree, ("tables",), written.tables, pipeline):
        raise PipelineInvalid(problems)
    suites = [check.suite for check in pipeline.checks]
    message = "`quality` names no suite `{}`"
    _require_named(tree, ("suites",), written.suites, suites, message, "Remove it.")
    texts = {
        name: json.dumps({"name": name, "expectations": suite}) for name, suite in written.suites.items()
    }
    # The suites are in the case, so a test does not depend on the folder of expectations.
    pipeline = with_suites(pipeline, texts.get)
    return Case(written.name, pipeline, _input(tree, written.input, pipeline), written.expect, written.tables)


def _require_named(
    tree: Tree, place: Route, names: Iterable[str], existing: list[str], message: str, fix: str
) -> None:
    """Raise PipelineInvalid for the names in a part of the case that the pipeline does not have."""
    problems = [
        tree.problem((*place, name), message.format(name), did_you_mean(name, existing, fix))
        for name in names
        if name not in existing
    ]
    if problems:
        raise PipelineInvalid(problems)


def _table_problems(
    tree: Tree, place: Route, tables: Mapping[str, Rows], pipeline: Pipeline, rows_field: str | None = None
) -> list[Problem]:
    """Return what is wrong with tables: by name in `place`, or one in the field `rows_field`."""
    columns: dict[str, set[str]] = {}
    for lookup in pipeline.lookup:
        columns.setdefault(lookup.table, set()).update((*lookup.on, *lookup.columns))
    for stage in pipeline.stages:
        if stage.expected is not None:
            columns.setdefault(stage.expected.table, set()).update(stage.expected.key)
    problems = []
    for name, rows in tables.items():
        if name not in columns:
            fix = did_you_mean(
                name, columns, f"The lookups have {listed(columns)}." if columns else "Remove it."
            )
            own = (*place, "table" if rows_field else name)
            problems.append(tree.problem(own, f"no lookup has a table `{name}`", fix))
            continue
        for at, row in enumerate(rows):
            for stranger in row.keys() - columns[name]:
                fix = did_you_mean(
                    stranger, columns[name], f"The columns are {listed(sorted(columns[name]))}."
                )
                message = f"the lookup does not use `{stranger}`"
                own = (*place, rows_field or name, at, stranger)
                problems.append(tree.problem(own, message, fix))
    return problems


def _input(
    tree: Tree, steps: Iterable[WrittenRecord | WrittenTick | WrittenTable], pipeline: Pipeline
) -> tuple[CaseStep, ...]:
    """Return the records, ticks and tables. Records without a topic get the first one that the first source
    lists; records without an offset get the next one of their partition.
    """
    sources = pipeline.sources
    for name, source in sources.items():
        _check_schemas(tree, _place(name), source)
    result: list[CaseStep] = []
    problems: list[Problem] = []
    # A record without an offset follows the record before it in its topic-partition.
    following: dict[tuple[str, int], int] = {}
    for at, step in enumerate(steps):
        if isinstance(step, WrittenTick):
            result.append(Tick(step.tick))
            continue
        if isinstance(step, WrittenTable):
            problems += _table_problems(tree, ("input", at), {step.table: step.rows}, pipeline, "rows")
            result.append(LookupRows(step.table, step.rows))
            continue
        topic = step.topic or _first_topic(sources)
        if (fault := _topic_fault(topic, sources)) is not None:
            problems.append(tree.problem(("input", at, "topic"), *fault))
            continue
        place = (topic, step.partition)
        offset = following.get(place, 0) if step.offset is None else step.offset
        # An explicit offset moves the partition forward, as a gap in a real log does.
        following[place] = offset + 1
        try:
            payload = _payload(step, sources.of_topic(topic))
        except (TypeError, SchemaFault) as error:
            fix = "Write the bytes of the record: `base64: AnMxAgo=`."
            if isinstance(error, TypeError):
                fix = "Write a text in quotes, or null."
            problems.append(tree.problem(("input", at, "value"), str(error), fix))
            continue
        try:
            key = _key(step.key, sources.of_topic(topic))
        except (ValueError, struct.error) as error:
            fix = "Write the value of the key's column as a text: `key: '8'`."
            problems.append(tree.problem(("input", at, "key"), f"it is no such key: {error}", fix))
            continue
        result.append(CaseRecord(key, payload, step.timestamp, *place, offset, step.headers))
    if problems:
        raise PipelineInvalid(problems)
    return tuple(result)


def _first_topic(sources: Sources) -> str:
    """Return the first topic of a list; empty for a pattern, which has none before a batch is planned."""
    (selection, *_) = [source.selection for source in sources.values()]
    return "" if isinstance(selection, TopicPattern) else selection[0]


def _topic_fault(topic: str, sources: Sources) -> tuple[str, str] | None:
    """Return what is wrong with the topic of a record, and the fix; None if a source reads it."""
    if sources.reads(topic):
        return None
    selections = [source.selection for source in sources.values()]
    topics = [name for names in selections if not isinstance(names, TopicPattern) for name in names]
    patterns = [f"`{names.pattern}`" for names in selections if isinstance(names, TopicPattern)]
    if not patterns:
        return f"`{topic}` is not a source topic", f"Write one of {', '.join(topics)}."
    fix = f"Write {', '.join([*topics, ''])}one that matches the pattern {' or '.join(patterns)}."
    return (f"`{topic}` does not match the pattern" if topic else "the record needs its topic"), fix


def _place(source: str) -> Route:
    """Return where a source is in the pipeline of a case."""
    return ("pipeline", "source") if source == SOURCE else ("pipeline", "sources", source)


def _check_schemas(tree: Tree, place: Route, source: Source) -> None:
    """Raise PipelineInvalid if the source needs a schema registry: a case runs without one."""
    if source.key_registry is not None:
        fix = "Write `key_format: json` in the case, and keys as JSON texts."
        message = "a case runs without a schema registry, so it has no schemas of keys"
        raise PipelineInvalid([tree.problem((*place, "key_registry"), message, fix)])
    # With a reader's schema in a file, values are encoded by that.
    if source.registry is not None and source.schemas.reader is None:
        fix = "Write the reader's schema as a file beside the pipeline, too: `schema: schemas/stock.avsc`."
        message = "a case runs without a schema registry"
        raise PipelineInvalid([tree.problem((*place, "registry"), message, fix)])


def _key(text: str | None, source: Source) -> str | bytes | None:
    """Return the record's own key: the text, or the bytes that stand for it in the format of keys.

    Raises ValueError or struct.error if the text is no value of the key's column.
    """
    key_format = formats().get(source.key_format)
    if text is None or key_format is None or key_format.key_bytes is None:
        return text
    (column,) = source.key_columns
    return key_format.key_bytes(pa.field(column.name, arrow_type(parse_type(column.type))), text)


def _payload(record: WrittenRecord, source: Source) -> bytes | None:
    """Return the bytes of the value: its JSON, its Avro by the schema file, or the text itself.

    Raises TypeError if the format needs a text and the value is none; SchemaFault if it does not fit the
    schema.
    """
    format_ = formats()[source.format]
    if record.base64 is not None:
        return record.base64
    if record.raw is not None:
        return record.raw.encode("utf-8", "surrogatepass")  # a case may test an unpaired surrogate, too
    if record.value is None:
        return None
    if format_.is_json:
        # `json.dumps` would round decimals to doubles, and the case would test another value.
        return exact_text(exact(record.value)).encode()
    if format_.needs_schema:
        return _binary(record.value, source)
    if not isinstance(record.value, str):
        raise TypeError(f"the value of `format: {format_.name}` is a text, not {shown(record.value)}")
    return record.value.encode("utf-8", "surrogatepass")


def _binary(value: Any, source: Source) -> bytes:
    """Encode a value by its schema; of Avro it is written in JSON as defaults are. Raises SchemaFault."""
    language, reader = formats()[source.format].language, source.schemas.reader
    if language is None or language.encode is None or reader is None:
        raise SchemaFault(f"a value of `format: {source.format}` cannot be made of JSON")
    return language.encode(reader, value)
