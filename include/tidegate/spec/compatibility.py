"""Which edits of a pipeline file the state of its generation survives. The guide has the table.

What is compared is what state rows, timers and keys were made with. What only says what goes out from now on,
or where to, may change. Types that only Spark can tell are left to it: there `SchemaChanged` halts the batch.

The pipeline before may have been planned under another grammar: none of its texts is parsed, and one whose
words cannot be told apart any more is compared as it stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tidegate.spec import lexis
from tidegate.spec.columns import ANY, BadType, Type, parse_type
from tidegate.spec.deduplicate import DeduplicateColumns
from tidegate.spec.emit import ChangeEmit, Emit, ThresholdEmit
from tidegate.spec.kernel import kernel_stage
from tidegate.spec.kinds import INTEGERS
from tidegate.spec.pipeline import Pipeline
from tidegate.spec.planned import python_functions
from tidegate.spec.reduce import Aggregate
from tidegate.spec.source import Source
from tidegate.spec.stage import Stage


@dataclass(frozen=True)
class Change:
    """An edit that state does not survive: of which field, from what, to what, and why."""

    field: str
    before: str
    after: str
    why: str

    def __str__(self) -> str:
        return f"`{self.field}` was {self.before} and is {self.after} ({self.why})"


def incompatible_changes(before: Pipeline, after: Pipeline) -> list[Change]:
    """Why batches planned with `after` cannot go on from the state of those planned with `before`.

    Nothing: they can. Both are of one generation.
    """
    changes = [*_in_source(before.source, after.source)]
    names = [stage.name for stage in before.stages], [stage.name for stage in after.stages]
    if names[0] != names[1]:
        return [
            *changes,
            _change("stages", *names, "each has a state of its own, made of all records so far"),
        ]
    for old, new in zip(before.stages, after.stages, strict=True):
        changes += [*_in_stage(old, new), *_in_types(old, new)]
        if _is_bounded(before, old) != _is_bounded(after, new):
            why = "a buffer with a bound keeps its state per partition"
            changes.append(_change(f"stages.{new.name}.emit.buffer", _buffer(old), _buffer(new), why))
    return changes


def notable_changes(before: Pipeline, after: Pipeline) -> list[str]:
    """Sentences on edits that state survives, and that consumers should know of."""
    old = {sink.name: before.stage_of(sink).name for sink in before.sinks}
    new = {sink.name: after.stage_of(sink).name for sink in after.sinks}
    functions = python_functions(before), python_functions(after)
    return [
        *_elsewhere(before.source, after.source),
        *(
            f"The function {name} has changed: it decides with each key's next record"
            for name in functions[0].keys() & functions[1].keys()
            if functions[0][name] != functions[1][name]
        ),
        *(f"The sink {name} is new: it gets what goes out from now on" for name in new.keys() - old.keys()),
        *(f"The sink {name} is gone: it gets nothing more" for name in old.keys() - new.keys()),
        *(
            f"The sink {name} gets the emissions of {new[name]} from now on, and no more those of {old[name]}"
            for name in old.keys() & new.keys()
            if old[name] != new[name]
        ),
    ]


def _elsewhere(before: Source, after: Source) -> Iterator[str]:
    if before.connection != after.connection:
        yield (
            f"The source is read by the connection {after.connection or 'without a name'} from now on: its "
            "topics' ids say whether they are the same"
        )


def _in_source(before: Source, after: Source) -> Iterator[Change]:
    removed = sorted(set(before.topics) - set(after.topics))
    if removed:
        why = "what came from a topic stays in the state, and its time would stand still"
        yield _change("source.topics", before.topics, after.topics, why)
    if before.format != after.format:
        why = "records that are still to be read were written in the other one"
        yield _change("source.format", before.format, after.format, why)
    yield from _if_changed("source.key", before.key, after.key, "state is found by the key")
    yield from _if_changed("source.explode", before.explode, after.explode, "it makes other records")
    why = "windows, timers and lateness go by it"
    yield from _if_changed("source.timestamp", before.timestamp, after.timestamp, why)
    why = "what was seen so far is remembered in another way"
    yield from _if_changed("source.deduplicate", before.deduplicate, after.deduplicate, why)
    types = _column_types(before), _column_types(after)
    for name in sorted({*_identities(before)} & {*_identities(after)}):
        old, new = (columns[name] for columns in types)
        if old.text != new.text and not {old.kind, new.kind} <= INTEGERS.keys():
            why = "keys would be written in another way"
            yield _change(f"source.columns.{name}", old.text, new.text, why)


def _identities(source: Source) -> tuple[str, ...]:
    """The columns by whose values records belong together."""
    rule = source.deduplicate
    return (*(source.key or ()), *(rule.columns if isinstance(rule, DeduplicateColumns) else ()))


def _in_stage(before: Stage, after: Stage) -> Iterator[Change]:
    place = f"stages.{after.name}"
    yield from _if_changed(f"{place}.key", before.key, after.key, "state is found by the key")
    yield from _if_changed(f"{place}.window", before.window, after.window, "state is kept per window")
    yield from _in_reduce(f"{place}.reduce", before, after)
    yield from _in_emit(f"{place}.emit", before.emit, after.emit)


def _in_reduce(place: str, before: Stage, after: Stage) -> Iterator[Change]:
    why = "the values so far were folded otherwise"
    if isinstance(before.reduce, str) or isinstance(after.reduce, str):
        yield from _if_changed(place, _aggregates(before), _aggregates(after), why)
        if before.reduce == after.reduce == "collect" and [*before.select] != [*after.select]:
            why = "the events that are held back have the other fields"
            yield _change(place.replace("reduce", "select"), [*before.select], [*after.select], why)
        elif before.reduce == after.reduce == "latest" and _keeps_values(before):
            yield from _removed(place.replace("reduce", "select"), before.select, after.select)
        return
    old, new = _by_name(before.reduce), _by_name(after.reduce)
    for name in [*old, *(name for name in new if name not in old)]:
        if _words(old.get(name)) != _words(new.get(name)):
            yield _change(f"{place}.{name}", old.get(name), new.get(name), why)


def _removed(place: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in before:
        if name not in after:
            yield _change(f"{place}.{name}", before[name], None, "the values so far have this column")


def _in_emit(place: str, before: Emit, after: Emit) -> Iterator[Change]:
    if before.on != after.on:
        yield _change(f"{place}.on", before.on, after.on, "what is remembered of each key depends on it")
        return
    if (before.clock, after.clock) == ("run", "stream"):
        yield _change(
            f"{place}.clock", before.clock, after.clock, "time would go back, and windows open again"
        )
    if isinstance(before, ChangeEmit) and isinstance(after, ChangeEmit):
        yield from _in_change(place, before, after)
    if isinstance(before, ThresholdEmit) and isinstance(after, ThresholdEmit):
        yield from _in_threshold(place, before, after)


def _in_change(place: str, before: ChangeEmit, after: ChangeEmit) -> Iterator[Change]:
    if before.state != after.state:
        yield _change(f"{place}.state", before.state, after.state, "the other one is not remembered")
    elif before.state == "hash":
        why = "all values would have another hash, and go out again"
        yield from _if_changed(f"{place}.columns", before.compared, after.compared, why)
        yield from _if_changed(f"{place}.equal", before.equal, after.equal, why)
        yield from _if_changed(f"{place}.timestamp", before.timestamp, after.timestamp, why)


def _in_threshold(place: str, before: ThresholdEmit, after: ThresholdEmit) -> Iterator[Change]:
    if before.after_ms is None and after.after_ms is not None:
        why = "what is held back has no timer, and would wait for its key's next record"
        yield _change(f"{place}.after", None, f"{after.after_ms} ms", why)


def _in_types(before: Stage, after: Stage) -> Iterator[Change]:
    """Values that both have, of other types, as far as those can be told without Spark."""
    for name, was in before.types.items():
        now = after.types.get(name)
        if was is not None and now is not None and was != now:
            yield _change(f"stages.{after.name}.{name}", was, now, "the values so far are of the other type")


def _column_types(source: Source) -> dict[str, Type]:
    """As keys see them: an array that is taken apart is one of its elements."""
    types = {column.name: _column_type(column.type) for column in source.columns}
    exploded = types.get(source.explode or "")
    return {**types, str(source.explode): exploded.parts[0]} if exploded and exploded.parts else types


def _column_type(text: str) -> Type:
    """A type in Spark's normal form; one that is not taken any more is equal to itself alone."""
    try:
        return parse_type(text)
    except BadType:
        return Type(text, ANY.kind)


def _is_bounded(pipeline: Pipeline, stage: Stage) -> bool:
    return kernel_stage(pipeline, stage).bound is not None


def _buffer(stage: Stage) -> Any:
    return getattr(stage.emit, "buffer", None)


def _keeps_values(stage: Stage) -> bool:
    """Of a stage with `reduce: latest`: whether its state has the values themselves."""
    return not (isinstance(stage.emit, ChangeEmit) and stage.emit.state == "hash")


def _aggregates(stage: Stage) -> Any:
    return stage.reduce if isinstance(stage.reduce, str) else [*map(_aggregate, stage.reduce)]


def _aggregate(aggregate: Aggregate) -> str:
    return f"{aggregate.name}: {aggregate.function}({aggregate.argument or '*'})"


def _by_name(aggregates: tuple[Aggregate, ...]) -> dict[str, str]:
    return {aggregate.name: f"{aggregate.function}({aggregate.argument or '*'})" for aggregate in aggregates}


def _words(text: str | None) -> list[str] | None:
    """What an expression is made of: blanks make no difference."""
    if text is None:
        return None
    words, faults = lexis.split(text)
    return [text] if faults else [word.text for word in words]


def _if_changed(field: str, before: Any, after: Any, why: str) -> Iterator[Change]:
    if before != after:
        yield _change(field, before, after, why)


def _change(field: str, before: Any, after: Any, why: str) -> Change:
    return Change(field, _as_text(before), _as_text(after), why)


def _as_text(value: Any) -> str:
    if value is None:
        return "not there"
    if isinstance(value, str):
        return value
    plain = value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
    return json.dumps(plain, ensure_ascii=False, default=str)
