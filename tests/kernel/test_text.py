"""Bytes that are no text, where a text should be, are reported with their record, by rows and by columns."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from tidegate import kernel
from tidegate.errors import RecordFailed

GIVEN = pa.struct([("reason", pa.string())])
TEXTS = pa.Array.from_buffers(pa.string(), 3, pa.array([b"x", "é".encode(), b"\xff"]).buffers())
"""As Spark gives them after `cast(bytes as string)`: the last one is no text."""
SHAPES = {
    "a text": TEXTS,
    "in a struct": pa.StructArray.from_arrays([TEXTS], ["s"]),
    "in an array": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), TEXTS),
}
STAGES = {
    "on whole columns": kernel.Stage(kernel.Latest(), kernel.Update()),
    "record by record": kernel.Stage(kernel.Latest(), kernel.Interval(10)),
    "collected": kernel.Stage(kernel.Collect(), kernel.Threshold(count=9)),
}


def rows_of(values: pa.Array, stage: kernel.Stage) -> pa.RecordBatch:
    value = pa.struct([("v", values.type)])
    reduce = stage.reduce
    schema = kernel.input_schema(value, reduce.accumulator_type(value), reduce.output_type(value), GIVEN)
    rows = [
        {
            "kind": kernel.RECORD,
            "hash": 0,
            "key": "k",
            "updated_seq": 0,
            "topic": "in",
            "partition": 0,
            "offset": n,
        }
        | {"offset": n, "turn": n, "part": 0, "timestamp": n, "passes": True}
        for n in range(len(values))
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    place = schema.get_field_index("value")
    return batch.set_column(place, schema.field(place), pa.StructArray.from_arrays([values], ["v"]))


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES.keys())
def test_undecodable_text_is_reported_with_its_record(values: pa.Array, stage: kernel.Stage) -> None:
    with pytest.raises(RecordFailed, match=r"not UTF-8 \(at the record in/0/2\)"):
        list(kernel.decide(stage, [rows_of(values, stage)]))


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
def test_a_stage_may_go_on_without_it(stage: kernel.Stage) -> None:
    decided = list(kernel.decide(replace(stage, on_error="quarantine"), [rows_of(TEXTS, stage)]))
    quarantined = [row for part in decided for row in part.to_pylist() if row["kind"] == kernel.QUARANTINED]
    assert [(row["offset"], row["input"]["reason"]) for row in quarantined] == [
        (2, "record_failed: It has a text that is not UTF-8")
    ]
    counts = json.loads(decided[-1].column("counts")[0].as_py())
    assert (counts["used"], counts["quarantined"]) == (2, 1)


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES.keys())
def test_text_beyond_ascii_is_text(stage: kernel.Stage) -> None:
    for rows in (rows_of(TEXTS.slice(0, 2), stage), rows_of(TEXTS, stage).slice(0, 2)):
        counts = list(kernel.decide(stage, [rows]))[-1].column("counts").to_pylist()
        assert json.loads(counts[0])["used"] == 2
