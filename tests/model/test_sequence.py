"""`source.sequence`: what can tell the order of a key's changes; what the kernel and a plan have of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import SOURCE, made, refused
from tidegate import kernel
from tidegate.formats import SequenceParts
from tidegate.model.columns import arrow_schema
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.model.kernel_stages import kernel_stage, sequence_stage, state_stages
from tidegate.spark.steps import record_layout

BINLOG = "file string, pos bigint, row int"


def source(sequence: Any, **fields: Any) -> dict[str, Any]:
    return {"source": {**SOURCE, **fields, "sequence": sequence}}


def debezium(sequence: Any, **fields: Any) -> dict[str, Any]:
    return source(sequence, format="debezium", **fields)


def problem(**fields: Any) -> tuple[str, str, str]:
    (only,) = refused(**fields)
    return only


def test_without_one_the_order_is_the_logs() -> None:
    pipeline = made()
    assert pipeline.sources["source"].sequence is None
    assert sequence_stage(pipeline) is None
    assert record_layout(pipeline.sources["source"]).sequence is None
    assert not kernel_stage(pipeline, pipeline.stages[0]).by_time


def test_sequence_step_precedes_stages_and_keeps_order() -> None:
    pipeline = made({}, {}, **source({"columns": ["at", "id"], "keep": "7d"}))
    stage = kernel.Stage(kernel.Latest(), kernel.InSequence(604_800_000), deduplicate="none", by_time=True)
    assert sequence_stage(pipeline) == stage
    assert state_stages([pipeline])["_sequence"] == [stage]
    assert [kernel_stage(pipeline, parsed).by_time for parsed in pipeline.stages] == [True, False]
    assert record_layout(pipeline.sources["source"]).sequence == SequenceParts(("at", "id"))


def test_debezium_sequence_uses_source_fields() -> None:
    pipeline = made(**debezium({"source": BINLOG}))
    assert pipeline.sources["source"].sequence is not None
    fields = arrow_schema(pipeline.sources["source"].sequence.source or ())
    assert record_layout(pipeline.sources["source"]).sequence == SequenceParts((), fields)
    assert fields.names == ["file", "pos", "row"]
    assert sequence_stage(pipeline) == kernel.Stage(
        kernel.Latest(), kernel.InSequence(None), deduplicate="none", by_time=True
    )


@pytest.mark.parametrize("sequence", [{"columns": ["id"], "keep": "1h"}, {"columns": ["name", "at"]}])
def test_a_plan_has_it(sequence: dict[str, Any]) -> None:
    pipeline = made(**source(sequence))
    assert read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1") == pipeline


def test_a_plan_has_debeziums_fields() -> None:
    pipeline = made(**debezium({"source": BINLOG, "keep": "1d"}))
    assert read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1") == pipeline


@pytest.mark.parametrize("name", ["price", "ok", "blob", "tags", "cents", "place"])
def test_sequence_without_an_order_is_refused(name: str) -> None:
    field, message, _ = problem(**source({"columns": [name]}))
    assert field == "source.sequence.columns.0"
    assert message.endswith("which cannot order changes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (source({"columns": ["ids"]}), "the column `ids` does not exist"),
        (source({"columns": ["id", "id"]}), "`id` is named twice"),
        (source({}), "a sequence is made of `columns`, or of fields of Debezium's `source`"),
        (source({"source": BINLOG}), "only `format: debezium` has an envelope with `source`"),
        (debezium({"columns": ["id"]}), "a deletion has no row, and so no `columns` that could order it"),
        (debezium({"source": "lsn double"}), "`lsn` is double, which cannot order changes"),
        (debezium({"source": ["lsn"]}), "the fields must be one text"),
        (
            source({"columns": ["id"]}, explode="tags"),
            "`sequence` does not go with `explode`: all elements of a record have the same",
        ),
        (
            source({"columns": ["id"]}, deduplicate="root"),
            "`sequence` and `deduplicate` both drop repetitions",
        ),
        (
            source({"columns": ["id"]}, deduplicate={"columns": ["name"], "keep": "1h"}),
            "`sequence` and `deduplicate` both drop repetitions",
        ),
    ],
)
def test_mistakes_say_what_to_do(options: dict[str, Any], message: str) -> None:
    _, actual_message, fix = problem(**options)
    assert actual_message == message
    assert fix
