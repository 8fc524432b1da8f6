"""A state that was written directly is one that batches can go on from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.events import Availability, Load, key
from benchmarks.rows import Shape, sorted_batches
from benchmarks.strategies import STRATEGIES
from benchmarks.written_state import keys_of, write_state

from tidegate import kernel
from tidegate.kernel.keys import GREATEST_HASH, LEAST_HASH
from tidegate.spark.shuffle import HashRange
from tidegate.spark.state import StateFiles, stored_schema, to_stored
from tidegate.storage.datafile import ROW_GROUP_ROWS
from tidegate.storage.layout import snapshot_name
from tidegate.storage.state import StateReader
from tidegate.storage.store import Store

FOLDER = f"stage/{snapshot_name(1)}"
KEYS = 2 * ROW_GROUP_ROWS + 1
STRATEGY = STRATEGIES["change, exact"]
STAGE = STRATEGY.stage(1)


def _records(load: Load) -> list[pa.RecordBatch]:
    return sorted_batches(load, Shape(STRATEGY.shape.value), STAGE)


def _decided(kind: int, rows: list[pa.RecordBatch]) -> pa.Table:
    decided = pa.Table.from_batches(rows)
    return decided.filter(pc.equal(decided["kind"], kind)).combine_chunks()


@pytest.fixture
def row() -> pa.Table:
    """The state row that a batch of one record writes."""
    records = _records(Load(events=1, keys=1))
    states = _decided(kernel.STATE, list(kernel.decide(STAGE, records)))
    stored = stored_schema(STAGE, records[0].schema)
    return pa.Table.from_batches([to_stored(states.to_batches()[0], stored, seq=1)])


def test_keys_are_those_of_the_events() -> None:
    products = np.arange(1_234)
    assert keys_of(products).to_pylist() == [key(product) for product in products.tolist()]


def test_every_product_has_a_row_sorted_by_hash(row: pa.Table, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    files = write_state(store, FOLDER, "stage", row, KEYS, partitions=2)
    with StateReader(store, files, row.schema) as reader:
        state = pa.concat_tables(reader.scan())
    assert sorted(state["key"].to_pylist()) == sorted(key(product) for product in range(KEYS))
    written = pa.concat_tables(pq.read_table(tmp_path / file.path) for file in files)
    assert (np.diff(written["hash"].to_numpy()) > 0).all()


def test_batch_on_a_written_state_emits_differences(row: pa.Table, tmp_path: Path) -> None:
    store, load = Store(str(tmp_path)), Load(events=5_000, keys=KEYS)
    files = write_state(store, FOLDER, "stage", row, KEYS, load.partitions)
    records = _records(load)
    state = StateFiles(store, tuple(files), row.schema, records[0].schema, by_place=False)
    with state.open(HashRange(LEAST_HASH, GREATEST_HASH), None) as prior:
        emissions = _decided(kernel.EMISSION, list(kernel.decide(STAGE, records, prior=prior)))
    is_available = row["value"][0].as_py()["isAvailable"]
    assert emissions.num_rows == Availability(KEYS, is_available).changes(load)
