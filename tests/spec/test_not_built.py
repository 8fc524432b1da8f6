"""What the contract describes and is not built is recognised, never ignored."""

from __future__ import annotations

import pytest

from tests.spec.files import edited, problems
from tidegate.spec.grammar import EXAMPLES, NOT_BUILT, PIPELINE
from tidegate.spec.pipeline import Quality, Written
from tidegate.spec.scope import Model
from tidegate.spec.sinks import KafkaSink, TableSink
from tidegate.spec.source import Source
from tidegate.spec.stage import ChangeEmit, Stage, UpdateEmit

Edit = tuple[str, str]
LATER: list[tuple[Edit, str, str]] = [
    (("format: json", "format: avro"), "source.format", "`avro`"),
    (("format: json", "format: protobuf"), "source.format", "`protobuf`"),
    (("timestamp: record", "schema: stock.avsc"), "source.schema", "a schema file"),
    (("explode: null", "explode: tags"), "source.explode", "`explode`"),
    (("deduplicate: offset", "deduplicate: root"), "source.deduplicate", "deduplicating by anything"),
    (("deduplicate: offset", "deduplicate: {columns: [id]}"), "source.deduplicate", "deduplicating by"),
    (("lookup: []", "lookup: [{table: x, on: [id]}]"), "lookup", "`lookup`"),
    (("- name: levels", "- name: levels\n    key: [storeId]"), "stages.0.key", "a stage's own `key`"),
    (("- name: levels", "- name: levels\n    window: {tumbling: 1h}"), "stages.0.window", "windows"),
    (("reduce: latest", "reduce: collect"), "stages.0.reduce", "`collect`"),
    (("reduce: latest", 'reduce: {n: "count(*)"}'), "stages.0.reduce", "aggregates"),
    (("on: change", "on: window_close"), "stages.0.emit.on", "`on: window_close`"),
    (("on: change", "on: time_limit"), "stages.0.emit.on", "`on: time_limit`"),
    (("on: change", "on: threshold"), "stages.0.emit.on", "`on: threshold`"),
    (("on: change", "on: interval"), "stages.0.emit.on", "`on: interval`"),
    (("equal: exact", "equal: bytes"), "stages.0.emit.equal", "`equal: bytes`"),
    (("equal: exact", "equal: {within: {seen: 5}}"), "stages.0.emit.equal", "comparing in any but"),
    (("equal: exact", "equal: {sql: 'old.x = new.x'}"), "stages.0.emit.equal", "comparing in any but"),
    (("equal: exact", "equal: {python: 'm:f'}"), "stages.0.emit.equal", "comparing in any but"),
    (("equal: exact", "timestamp: true"), "stages.0.emit.timestamp", "`timestamp`"),
    (("equal: exact", "state: hash"), "stages.0.emit.state", "`state: hash`"),
    (("equal: exact", "heartbeat: 1h"), "stages.0.emit.heartbeat", "`heartbeat`"),
    (("equal: exact", "clock: run"), "stages.0.emit.clock", "`clock`"),
    (("equal: exact", "buffer: {max_records: 5}"), "stages.0.emit.buffer", "`buffer`"),
    (("kind: table\n    path: out/levels", "kind: sql\n    table: levels"), "sinks.1.kind", "`kind: sql`"),
]


@pytest.mark.parametrize(("edit", "field", "what"), LATER, ids=[edit[1] for edit, *_ in LATER])
def test_is_told_to_be_not_built_yet_and_nothing_else(edit: Edit, field: str, what: str) -> None:
    ((_, found, message, instead),) = problems(edited(edit))
    assert found == field
    assert message.startswith(f"not built yet: {what}")
    assert instead.startswith(("Use ", "Leave ", "Keep "))


def test_several_stages_are_not_built_yet() -> None:
    text = edited(("sinks:", "  - name: other\n    emit: {on: update}\nsinks:"))
    ((line, field, message, _),) = problems(text)
    assert (line, field, message) == (15, "stages", "not built yet: several stages")


def test_the_options_of_a_strategy_that_is_not_built_are_not_told_one_by_one() -> None:
    text = edited(("on: change\n      equal: exact", "on: threshold\n      count: 100\n      clock: run"))
    assert [field for _, field, *_ in problems(text)] == ["stages.0.emit.on"]


def test_other_mistakes_are_told_beside_it() -> None:
    text = edited(("reduce: latest", "reduce: collect"), ("generation: 2", "generation: 0"))
    assert [field for _, field, *_ in problems(text)] == ["generation", "stages.0.reduce"]


def _fields(model: type[Model], path: str) -> set[str]:
    return {f"{path}.{name}" if path else name for name in model.model_fields}


def test_every_field_of_the_models_has_an_example_and_no_other() -> None:
    fields = (
        _fields(Written, "")
        | _fields(Source, "source")
        | _fields(Stage, "stages.*")
        | _fields(UpdateEmit, "stages.*.emit")
        | _fields(ChangeEmit, "stages.*.emit")
        | _fields(KafkaSink, "sinks.*")
        | _fields(TableSink, "sinks.*")
        | _fields(Quality, "quality")
        | {"stages.*.select.*"}
    )
    assert set(EXAMPLES) == fields


def test_what_is_not_built_is_suggested_like_other_fields() -> None:
    assert {row.path for row in NOT_BUILT} <= {*PIPELINE.examples, *PIPELINE.others}
    ((_, _, _, fix),) = problems(edited(("equal: exact", "hartbeat: 1h")))
    assert fix == "Did you mean `heartbeat`?"
