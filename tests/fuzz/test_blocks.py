"""A record's row, or the reason why it has none, does not depend on which records are decoded beside it."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from tests.fuzz.records import SourceRecords
from tests.fuzz.schemas import KINDS, damaged, draw_file
from tidegate.formats import FrameDecoder, Records
from tidegate.model.pipeline import Pipeline
from tidegate.model.source import Source
from tidegate.spark.steps import record_layout
from tidegate.yaml.load import load_pipeline

FLAT = "id bigint, n int, price decimal(10,2), name string, at timestamp, day date"
COLUMNS = {
    "json": f"{FLAT}, items array<int>, part struct<a:int,b:double>",
    "debezium": f"{FLAT}, items array<int>",
    "cloudevents": f"{FLAT}, items array<int>, ce_type string, ce_time timestamp, ce_count int",
    "csv": FLAT,
    "kafka": "id bigint",
}
FORMATS = get_args(Source.model_fields["format"].annotation)
FIRST = int(os.environ.get("TIDEGATE_TEST_SEED", "1")) * 1_000_000
COUNT = int(os.environ.get("TIDEGATE_FUZZ_BLOCKS", "60"))
SEEDS_PER_SCHEMA = 20


def pipeline_of(folder: Path, source: str) -> Pipeline:
    path = folder / "fuzzed.yaml"
    path.write_text(
        f"pipeline: fuzzed\nsource: {{topics: [t], {source}}}\n"
        "stages: [{name: s, emit: {on: update}}]\nsinks: [{kind: kafka, topic: out}]\n"
    )
    return load_pipeline(path)


def payloads(dice: random.Random, source: Source, folder: Path) -> list[bytes | None]:
    """Return values of a format, of which some are cut, changed in a byte, repeated or none at all."""
    records = SourceRecords(dice, source, folder, keys=(), shared={})
    drawn = [records.payload() for _ in range(dice.randint(2, 12))]
    return [damaged(dice, value) if value and dice.random() < 0.4 else value for value in drawn]


def decoder_of(pipeline: Pipeline) -> FrameDecoder:
    return FrameDecoder(record_layout(pipeline.sources["source"]), None, True)


def decoded(decoder: FrameDecoder, values: list[bytes | None]) -> list[dict[str, Any]]:
    count = len(values)
    records = Records("t", 0, range(count), [1_000] * count, [b"k"] * count, values, [[] for _ in values])
    return [row for batch in decoder.decode(records) for row in pa.Table.from_batches([batch]).to_pylist()]


def _without_place(rows: list[dict[str, Any]]) -> list[str]:
    return [
        repr({name: value for name, value in row.items() if name not in ("__offset", "__turn")})
        for row in rows
    ]


def assert_alike(pipeline: Pipeline, folder: Path, seed: int) -> None:
    values = payloads(random.Random(seed), pipeline.sources["source"], folder)
    # As in production, one decoder decodes all records of a task: here, those that are alone.
    decoder = decoder_of(pipeline)
    rows = decoded(decoder_of(pipeline), values)
    assert len(rows) == len(values), seed
    alone = [row for value in values for row in decoded(decoder, [value])]
    assert _without_place(rows) == _without_place(alone), seed


@pytest.mark.heavy
@pytest.mark.parametrize("format_", [name for name in FORMATS if name in COLUMNS or name not in KINDS])
def test_block_decodes_records_as_if_alone(format_: str, tmp_path: Path) -> None:
    columns = f', columns: "{COLUMNS[format_]}"' if format_ in COLUMNS else ""
    pipeline = pipeline_of(tmp_path, f"format: {format_}{columns}")
    for seed in range(FIRST, FIRST + COUNT):
        assert_alike(pipeline, tmp_path, seed)


@pytest.mark.heavy
@pytest.mark.parametrize("format_", KINDS)
def test_block_with_schema_decodes_as_if_alone(format_: str, tmp_path: Path) -> None:
    for first in range(FIRST, FIRST + COUNT, SEEDS_PER_SCHEMA):
        name, _ = draw_file(random.Random(first), format_, tmp_path)
        pipeline = pipeline_of(tmp_path, f"format: {format_}, schema: {name}")
        for seed in range(first, first + SEEDS_PER_SCHEMA):
            assert_alike(pipeline, tmp_path, seed)
