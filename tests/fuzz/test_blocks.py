"""A record's row, or the reason why it has none, does not depend on which records are decoded beside it."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.fuzz.records import RecordDrawing
from tidegate.engine.decoding import record_layout
from tidegate.formats import FrameDecoder, Records
from tidegate.spec import Pipeline, load_pipeline

SCHEMAS = Path(__file__).resolve().parents[1] / "spec" / "schemas"
FLAT = "id bigint, n int, price decimal(10,2), name string, at timestamp, day date"
COLUMNS = f"{FLAT}, items array<int>"
SOURCES = {
    "json": f'format: json, columns: "{COLUMNS}, part struct<a:int,b:double>"',
    "debezium": f'format: debezium, columns: "{COLUMNS}"',
    "csv": f'format: csv, columns: "{FLAT}"',
    "string": "format: string",
    "bytes": "format: bytes",
    "json schema": "format: json, schema: schemas/stock.json",
    "avro": "format: avro, schema: schemas/stock.avsc",
    "protobuf": "format: protobuf, schema: schemas/stock.proto, message: shop.Stock",
}
FIRST = int(os.environ.get("TIDEGATE_TEST_SEED", "1")) * 1_000_000
COUNT = int(os.environ.get("TIDEGATE_FUZZ_BLOCKS", "60"))


def pipeline_of(folder: Path, source: str) -> Pipeline:
    shutil.copytree(SCHEMAS, folder / "schemas", dirs_exist_ok=True)
    path = folder / "fuzzed.yaml"
    path.write_text(
        f"pipeline: fuzzed\nsource: {{topics: [t], {source}}}\n"
        "stages: [{name: s, emit: {on: update}}]\nsinks: [{kind: kafka, topic: out}]\n"
    )
    return load_pipeline(path)


def avro(dice: random.Random) -> bytes:
    row = {"storeId": dice.choice(("", "a", "ä")), "id": dice.choice((0, -1, 2**63 - 1)), "quantity": None}
    out = io.BytesIO()
    schema = json.loads((SCHEMAS / "stock.avsc").read_text())
    fastavro.schemaless_writer(out, schema, row | {"quantity": dice.choice((None, 1, -(2**31)))})
    return out.getvalue()


def protobuf(dice: random.Random) -> bytes:
    text, number = dice.choice((b"", b"a", "ä".encode())), dice.choice((0, 1, 127))
    return b"\x0a" + bytes([len(text)]) + text + b"\x10" + bytes([number]) + b"\x18\x05"


def payloads(dice: random.Random, name: str, pipeline: Pipeline) -> list[bytes | None]:
    """Return values of a format, of which some are cut, changed in a byte, repeated or none at all."""
    write = {"avro": avro, "protobuf": protobuf}.get(name)
    drawing = RecordDrawing(dice, pipeline)
    drawn = [write(dice) if write else drawing.payload() for _ in range(dice.randint(2, 12))]
    return [_damaged(dice, value) if value and dice.random() < 0.4 else value for value in drawn]


def _damaged(dice: random.Random, value: bytes) -> bytes:
    place = dice.randrange(len(value))
    return dice.choice(
        (
            value[:place],
            value[:place] + bytes([dice.randrange(256)]) + value[place + 1 :],
            value[:place] + value[place:] * 2,
            value[:place] + dice.choice((b"\x00", b'"', b",", b"}", b"\xff", b"9" * 40)) + value[place:],
            struct.pack(">q", dice.getrandbits(63)) + value,
        )
    )


def decoded(pipeline: Pipeline, values: list[bytes | None]) -> list[dict[str, Any]]:
    count = len(values)
    records = Records("t", 0, range(count), [1_000] * count, [b"k"] * count, values, [[] for _ in values])
    rows = FrameDecoder(record_layout(pipeline.source), None, True).decode(records)
    return [row for batch in rows for row in pa.Table.from_batches([batch]).to_pylist()]


def _without_place(rows: list[dict[str, Any]]) -> list[str]:
    return [
        repr({name: value for name, value in row.items() if name not in ("__offset", "__turn")})
        for row in rows
    ]


@pytest.mark.parametrize("name", SOURCES)
def test_a_record_is_decoded_in_a_block_as_it_is_alone(name: str, tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, SOURCES[name])
    for seed in range(FIRST, FIRST + COUNT):
        values = payloads(random.Random(seed), name, pipeline)
        rows = decoded(pipeline, values)
        assert len(rows) == len(values), seed
        alone = [row for value in values for row in decoded(pipeline, [value])]
        assert _without_place(rows) == _without_place(alone), seed
