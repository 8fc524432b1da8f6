"""A drawn pipeline in the deliberately naive model (`tests.kernel.model`), where that covers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from tests.kernel.joins_for_tests import Emitted, JoinRecord, naive
from tests.kernel.model import Batch, BufferFull, Emission, Model, Record
from tests.kernel.model.chain import Serial, as_records
from tests.kernel.model.grammar import Condition, settings_of
from tests.kernel.model.records import Partition
from tests.kernel.model.retraction import Groups
from tests.kernel.model.windows import WATCHED_MS
from tidegate.kernel.aggregates import DISTINCT
from tidegate.kernel.aggregates.formula import Formula
from tidegate.kernel.json_text import encoder
from tidegate.model.kernel_stages import value_schema
from tidegate.model.pipeline import Pipeline
from tidegate.model.sources import union_of
from tidegate.spark.case_parts import CaseInput
from tidegate.yaml.cases import CaseStep
from tidegate.yaml.tree import read_exactly

Row: TypeAlias = tuple[str, int, "tuple[int, int] | None", str]
"""An emission as it can be compared: value, timestamp, window and reason."""

_OF_STAGE = {
    *("name", "from", "key", "window", "reduce", "select", "aliases", "emit", "where", "on_late", "ttl"),
    "retract",
}
_OF_EMIT = {
    *("on", "clock", "every", "after", "count", "since", "heartbeat", "at_most_every", "until"),
    *("state", "timestamp", "buffer", "columns", "ignore", "equal", "early", "any"),
}
_ORDERED = ("int", "bigint", "smallint", "tinyint", "double", "float", "string", "boolean", "date")
_SUMMED = ("int", "bigint", "smallint", "tinyint", "double")
_NOT_MODELLED = ("variance", "stddev", "min_by", "max_by", "percentile", "top")
_MANY = 100
_OF_TWO = re.compile(r"(\w+\([^()]*\)) ([-+/]) (\w+\([^()]*\))")
_COLUMN = re.compile(r"`(\w+)`")
_SIDE = re.compile(r"`?(left|right)`?(?:\.`?(\w+)`?)?")
_CONDITION = re.compile(r"`(\w+)` (is not null|is null|> 1)|true")


class NotCovered(Exception):
    """The model does not know an option, a type or an expression of the pipeline."""


@dataclass(frozen=True)
class Modelled:
    """The results of the model: the emissions by key, or None if a buffer was full.

    `ordered`: whether the emissions of a key have one order.
    """

    emissions: Mapping[str, list[Row]] | None
    ordered: bool = True


def modelled(pipeline: Pipeline, written: Mapping[str, Any], inputs: Sequence[CaseStep]) -> Modelled:
    """Return what the model makes of the uncut input. `written` is the pipeline file. Raises NotCovered."""
    _require(not pipeline.tables, "a table")
    for source in pipeline.sources.values():
        _require(source.sequence is None and source.deduplicate in ("offset", "root"), "deduplicate")
        _require(source.filter is None, "a filter")
    # Only what the last stage emits is compared.
    path = [pipeline.stages.index(stage) for stage in pipeline.path_to(pipeline.stages[-1])]
    *before, last = path
    join = _Join(pipeline, written["stages"][last]) if pipeline.stages[last].join is not None else None
    modelled_ = path if join is None else before
    stages = [_Stage(pipeline, number, written["stages"][number]) for number in modelled_]
    batches = _batches(pipeline, inputs)
    instants = [record.timestamp for batch in batches for record in batch.records]
    instants += [batch.clock for batch in batches if batch.clock is not None]
    span_ms = max(instants, default=0) - min(instants, default=0)
    _require(all(stage.is_quick(span_ms) for stage in stages), "as many timers or windows")
    try:
        if join is not None:
            emissions = join.emissions(stages, batches)
        else:
            emissions = _alone(stages[0], batches) if len(stages) == 1 else _chained(stages, batches)
    except BufferFull:
        return Modelled(None)
    partitions = {record.home for batch in batches for record in batch.records}
    bounded = any("buffer" in stage.settings["emit"] for stage in stages)
    text = encoder(pa.struct(list(value_schema(pipeline, pipeline.stages[-1]))))
    by_key: dict[str, list[Row]] = {}
    for emission in emissions:
        value = None if emission.value is None else read_exactly(text(emission.value))
        row = (repr(value), emission.timestamp, emission.window, emission.reason)
        by_key.setdefault(emission.key, []).append(row)
    return Modelled(by_key, len(partitions) == 1 or not bounded)


class _Stage:
    """A stage as the model takes it."""

    def __init__(self, pipeline: Pipeline, number: int, written: Mapping[str, Any]) -> None:
        self.stage = pipeline.stages[number]
        emit = dict(written.get("emit") or {})
        _require(written.keys() <= _OF_STAGE and emit.keys() <= _OF_EMIT, "an option")
        _require("max_bytes" not in emit.get("buffer", {}), "bytes of values")
        schema = value_schema(pipeline, self.stage)
        _require(not any(pa.types.is_null(field.type) for field in schema), "a type")
        self.conditions: dict[str, Condition] = {}
        self.settings: dict[str, Any] = {"name": "out", "emit": emit, "reduce": self._reduce(written)}
        if isinstance(self.settings["reduce"], str):
            self.settings["select"] = {name: _column(sql) for name, sql in self.stage.select.items()}
        if "window" in written:
            _require("sliding" not in (written["window"] or {}), "sliding windows")
            self.settings["window"] = written["window"]
        if "ttl" in written:
            self.settings["ttl"] = written["ttl"]
        if "where" in written:
            self.settings["where"] = written["where"]
            self.conditions[written["where"]] = _condition(written["where"])
        if "until" in emit:
            self.conditions[emit["until"]] = _condition(emit["until"])
        for trigger in emit.get("any", ()):
            _require(trigger.keys() <= _OF_EMIT, "an option of a trigger")
        emit["any"] = [dict(trigger) for trigger in emit.get("any", ())]
        for part in (emit, *emit["any"]):
            if "equal" in part:
                part["equal"] = _equal(part["equal"])
        if emit["any"]:
            emit["clock"] = self.stage.emit.clock
        else:
            del emit["any"]
        key = self.stage.key
        _require(key is None or not self.stage.reads_source, "another key than the source's")
        _require(key is None or len(key) == 1, "a key of several columns")
        _require(not self.stage.nested, "a key that is a field")
        self.key = None if key is None else key[0]
        if self.stage.retract:
            self._require_groups(emit)

    def _require_groups(self, emit: Mapping[str, Any]) -> None:
        is_timed = {"at_most_every", "heartbeat"} & emit.keys()
        _require(emit.get("on") in ("update", "change") and not is_timed, "timers of groups")
        is_set = any(part.function == "collect_set" for part in self.stage.reduce.by_name.values())
        _require(not is_set, "the order of a set")

    def _reduce(self, written: Mapping[str, Any]) -> Any:
        reduce = written.get("reduce", "latest")
        if isinstance(reduce, str):
            return reduce
        return {name: self._column_of(name) for name in reduce}

    def _column_of(self, name: str) -> str:
        formulas = {formula.name: formula for formula in self.stage.reduce.formulas}
        return self._formula(formulas[name]) if name in formulas else self._aggregate(name)

    def _formula(self, formula: Formula) -> str:
        aggregates = self.stage.reduce.by_name
        if formula.name in aggregates:
            return self._aggregate(formula.name)
        sides = _OF_TWO.fullmatch(formula.text)
        _require(sides is not None, "a formula")
        assert sides
        names = {aggregate.text: name for name, aggregate in aggregates.items()}
        _require(sides[1] in names and sides[3] in names, "parts of a formula")
        return f"{self._aggregate(names[sides[1]])} {sides[2]} {self._aggregate(names[sides[3]])}"

    def _aggregate(self, name: str) -> str:
        aggregate = self.stage.reduce.by_name[name]
        if aggregate.function == "count" and aggregate.argument is None:
            return "count(*)"
        _require(aggregate.function not in _NOT_MODELLED, "an aggregate")
        if aggregate.function == DISTINCT:
            return f"count(distinct {_column(aggregate.argument)})"
        type_ = self.stage.types.get(name)
        input_types = {"sum": _SUMMED, "avg": ("double",), "min": _ORDERED, "max": _ORDERED}
        input_types |= {"median": ("int", "bigint", "smallint", "tinyint")}
        _require(type_ in input_types.get(aggregate.function, (type_,)), "an aggregate of this type")
        return f"{aggregate.function}({_column(aggregate.argument)})"

    @property
    def at_once(self) -> bool:
        """Whether it emits with a record only, and the records of sources have one key for it."""
        emit, settings = self.settings["emit"], self.model().settings
        waits = {"at_most_every", "heartbeat"} & emit.keys() or "ttl" in self.settings or settings.window
        return settings.on in ("update", "change") and not waits and self.stage.reads_source

    def is_quick(self, span_ms: int) -> bool:
        """Return whether the model, which is slow, gets through records of that time."""
        settings = self.model().settings
        heartbeat, window = settings.duration("heartbeat"), settings.window
        if window is not None and window.timezone is not None:
            _require(window.every_ms % WATCHED_MS == window.offset_ms % WATCHED_MS == 0, "so short a step")
        is_slow = window is not None and window.size_ms // window.every_ms > _MANY
        return not is_slow and (heartbeat is None or span_ms // heartbeat <= _MANY)

    def model(self) -> Model:
        return Model(self.settings, "offset", self.conditions)

    def serial(self) -> Serial:
        # of groups, the naive model has the values
        reduce = "latest" if self.stage.retract else self.settings["reduce"]
        return Serial({**self.settings, "reduce": reduce}, "offset", self.conditions)

    def log(self, batches: Sequence[Sequence[Emission]], home: Partition) -> list[list[Sequence[Record]]]:
        """Return what the stage reads of the emissions of the stage before, in order, per batch."""
        settings = settings_of(self.settings, self.conditions)
        groups = Groups(settings, self.key) if self.stage.retract else None
        logs, offset = [], 0
        for emitted in batches:
            if groups is None:
                _require(all(_has_key(emission, self.key) for emission in emitted), "a key that is null")
                read: list[Sequence[Record]] = [[record] for record in as_records(emitted, home, self.key)]
            else:
                is_covered = all(
                    emission.value is None or _is_grouped(emission.value, self.key) for emission in emitted
                )
                _require(is_covered, "such a row")
                read = [*groups.records(emitted, home)]
            logs.append(
                [[replace(record, offset=record.offset + offset) for record in part] for part in read]
            )
            offset += len(emitted)
        return logs


class _Join:
    """The last stage, which pairs what two stages emit of the records of one partition."""

    def __init__(self, pipeline: Pipeline, written: Mapping[str, Any]) -> None:
        self.stage = pipeline.stages[-1]
        _require(written.keys() <= {"name", "join", "select", "where", "on_late", "on_error"}, "an option")
        assert self.stage.join is not None
        self.rule = self.stage.join
        _require(pipeline.key_of(self.stage) == (), "the columns of a key")
        self.columns = {name: _SIDE.fullmatch(sql) for name, sql in self.stage.select.items()}
        _require(all(self.columns.values()), "a field of a struct")
        self.where = _condition(written["where"]) if "where" in written else None

    def emissions(self, sides: Sequence[_Stage], batches: Sequence[Batch]) -> list[Emission]:
        """Return the emissions of both sides' emissions, each record's left ones before its right ones."""
        by_name = {side.stage.name: side for side in sides}
        _require(by_name.keys() == {*self.rule.inputs} and all(side.at_once for side in sides), "such sides")
        records = [record for batch in batches for record in batch.records]
        _require(len({record.home for record in records}) < 2, "several partitions")
        _require(len({record.offset for record in records}) == len(records), "an exploded record")
        _require(all(batch.clock is None for batch in batches), "clocks")
        models = [("left", by_name[self.rule.left].model()), ("right", by_name[self.rule.right].model())]
        log: list[JoinRecord] = []
        for record in records:
            for side, model in models:
                before = len(model.emissions)
                model.apply(Batch((record,)))
                log += [
                    JoinRecord(side, emission.key, emission.value, emission.timestamp)
                    for emission in model.emissions[before:]
                ]
        return [emission for joined in naive(self.rule, log) if (emission := self._emission(joined))]

    def _emission(self, joined: Emitted) -> Emission | None:
        value = {}
        for name, path in self.columns.items():
            assert path
            side = joined.left if path[1] == "left" else joined.right
            value[name] = side if path[2] is None or side is None else side[path[2]]
        if self.where is not None and self.where(value) is not True:
            return None
        return Emission(joined.key, value, joined.timestamp, None, joined.reason, joined.at)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise NotCovered(what)


def _column(sql: str) -> str:
    match = _COLUMN.fullmatch(sql)
    _require(match is not None, "an expression")
    assert match
    return match[1]


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    _require(match is not None, "a condition")
    assert match
    name, test = match.groups()
    tests: dict[str | None, Callable[[Any], bool | None]] = {
        "is null": lambda value: value is None,
        "is not null": lambda value: value is not None,
        "> 1": _is_above_one,
        None: lambda _: True,
    }
    return lambda row: tests[test](row.get(name))


def _is_above_one(value: Any) -> bool | None:
    if value is None:
        return None
    _require(isinstance(value, (int, float, Decimal)) and not isinstance(value, bool), "a comparison")
    return bool(value != value or value > 1)  # NaN is above all numbers


def _equal(written: Any) -> Any:
    if isinstance(written, Mapping) and written.keys() == {"within"}:
        amounts = {name: str(amount) for name, amount in written["within"].items()}
        return {"within": {name: text if "%" in text else Decimal(text) for name, text in amounts.items()}}
    _require(written == "exact", "an equality")
    return written


def _batches(pipeline: Pipeline, inputs: Sequence[CaseStep]) -> list[Batch]:
    """Return the records that can be used, by batch."""
    given = CaseInput(inputs)
    # The last stage's path begins at these sources; in their union, a column that one lacks is null.
    sources = pipeline.path_to(pipeline.stages[-1])[0].sources
    decoded = [given.decoded(pipeline.sources, name, False).to_pylist() for name in sources]
    rows = sorted((row for part in decoded for row in part), key=lambda row: (row["__turn"], row["__part"]))
    _require(not any(row["__empty"] for row in rows), "a record without an element")
    names = [column.name for column in union_of(pipeline.sources_of(pipeline.stages[-1]))]
    batches, cut = [], given.cut(())
    for (start, end), clock in zip(cut.spans, cut.clocks, strict=True):
        usable = [row for row in rows if start <= row["__turn"] < end and row["__reason"] is None]
        batches.append(Batch(tuple(_record(row, names) for row in usable), clock))
    return batches


def _record(row: Mapping[str, Any], names: Sequence[str]) -> Record:
    value = None if row["__tombstone"] else {name: row.get(name) for name in names}
    place = row["__topic"], row["__partition"], row["__offset"]
    return Record(row["__key"], value, *place, row["__timestamp"], None, row["__part"])


def _alone(stage: _Stage, batches: Sequence[Batch]) -> list[Emission]:
    model = stage.model()
    for batch in batches:
        model.apply(batch)
    return model.emissions


def _chained(stages: Sequence[_Stage], batches: Sequence[Batch]) -> list[Emission]:
    """Return the last stage's emissions: record by record through each, from one partition."""
    homes = sorted({record.home for batch in batches for record in batch.records})
    _require(len(homes) < 2, "several partitions")
    logs = [_groups(batch.records) for batch in batches]
    emitted: list[list[Emission]] = []
    for number, stage in enumerate(stages):
        if number:
            logs = stage.log(emitted, homes[0] if homes else ("", 0))
        serial = stage.serial()
        emitted = [serial.apply_batch(log, batch.clock) for log, batch in zip(logs, batches, strict=True)]
    return [emission for batch in emitted for emission in batch]


def _groups(records: Sequence[Record]) -> list[Sequence[Record]]:
    """Return the records that were exploded from one together."""
    groups: dict[int, list[Record]] = {}
    for record in records:
        groups.setdefault(record.offset, []).append(record)
    return [*groups.values()]


def _has_key(emission: Emission, key: str | None) -> bool:
    return key is None or emission.value is None or isinstance(emission.value.get(key), (str, int))


def _is_grouped(row: Mapping[str, Any], key: str | None) -> bool:
    """Return whether a row has a group whose key has one text, or none, and nothing whose sum is inexact."""
    is_exact = not any(isinstance(value, float) for value in row.values())
    return is_exact and (key is None or isinstance(row.get(key), (str, int, type(None))))
