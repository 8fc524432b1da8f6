"""Files of long texts that hardly repeat are compressed by Snappy, and all others by Zstandard."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.storage.datafile import RowWriter, read_files
from tidegate.storage.store import Store

ALPHABET = string.ascii_letters + string.digits
RANDOM = random.Random(1)


def _text(characters: int) -> str:
    return "".join(RANDOM.choices(ALPHABET, k=characters))


@pytest.mark.parametrize(
    ("values", "codec"),
    [
        ([_text(1_000) for _ in range(100)], "SNAPPY"),
        (["the same " * 100 for _ in range(100)], "ZSTD"),
        ([_text(20) for _ in range(100)], "ZSTD"),
        ([None], "ZSTD"),
    ],
)
def test_compression_follows_the_longest_texts(tmp_path: Path, values: list[str | None], codec: str) -> None:
    store = Store(str(tmp_path))
    rows = pa.RecordBatch.from_pydict(
        {"offset": pa.array(range(len(values))), "value": pa.array(values, pa.string())}
    )
    with RowWriter(store, "out.parquet", "outbox", "out") as writer:
        writer.write(rows)
    assert writer.file is not None
    metadata = pq.read_metadata(tmp_path / writer.file.path)
    assert {metadata.row_group(0).column(number).compression for number in range(2)} == {codec}
    assert read_files(store, [writer.file]).equals(pa.Table.from_batches([rows]))
