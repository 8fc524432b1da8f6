"""The page of a key in a state of 10,000,000 keys and 1,000 batches comes within two seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.events import Load
from benchmarks.rows import Shape, sorted_batches
from benchmarks.strategies import STRATEGIES
from benchmarks.written_state import keys_of, rows_of, write_state
from fastapi.testclient import TestClient

from tests.console.pages import served, set_environment
from tests.seeded import Seeded, emission
from tidegate import kernel
from tidegate.app import stream_of
from tidegate.kernel.keys import key_hashes
from tidegate.maintenance.compaction import compact_overdue
from tidegate.model.pipeline import Pipeline
from tidegate.spark.state import stored_schema, to_stored
from tidegate.storage import attempt_name
from tidegate.storage.datafile import RowWriter
from tidegate.storage.manifest import DataFile

KEYS, BATCHES, CHANGES = 10_000_000, 1_000, 1_000
"""The keys of the state, the batches, and the keys that a batch changes."""
OFTEN, NEVER = 7, 8
"""A product that all batches change, and one that only the first has written."""
STAGE = "availability"


def state_row() -> pa.Table:
    """Return the state row that a batch of one record writes."""
    strategy = STRATEGIES["change, exact"]
    stage = strategy.stage(1)
    records = sorted_batches(Load(events=1, keys=1), Shape(strategy.shape.value), stage)
    decided = pa.Table.from_batches(list(kernel.decide(stage, records)))
    states = decided.filter(pc.equal(decided["kind"], kernel.STATE)).combine_chunks()
    stored = stored_schema(stage, records[0].schema)
    return pa.Table.from_batches([to_stored(states.to_batches()[0], stored, seq=1)])


def changelog(seeded: Seeded, pipeline: Pipeline, seq: int, row: pa.Table) -> DataFile:
    """Write the state rows of the products that a batch changes; one of them is OFTEN."""
    drawn = np.random.default_rng(seq).integers(NEVER + 1, KEYS, CHANGES)
    products = np.unique(np.append(drawn, OFTEN))
    products = products[np.argsort(key_hashes(keys_of(products)).to_numpy())]
    place = row.schema.get_field_index("updated_seq")
    own = row.set_column(place, row.schema.field(place), pa.array([seq], pa.int64()))
    lake = seeded.app.lake(stream_of(pipeline))
    path = f"{lake.files('state', STAGE, attempt_name(seq, seq))}/0.parquet"
    with RowWriter(lake.store, path, "state", STAGE) as writer:
        writer.write(rows_of(own, products, 1))
    assert writer.file is not None
    return writer.file


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The pages of a state whose batches are compacted as those of a run are."""
    seeded = Seeded(tmp_path, now=time.time() - 300 * BATCHES)
    set_environment(monkeypatch, seeded.environment)
    pipeline, row = seeded.add_sample("availability"), state_row()
    lake, counts = seeded.app.lake(stream_of(pipeline)), {"used": 1_000.0, "emitted": 1_000.0}
    folder = lake.files("state", STAGE, attempt_name(1, 1))
    seeded.batch(pipeline, 1, counts, state=write_state(lake.store, folder, STAGE, row, KEYS, 1))
    often = str(keys_of(np.array([OFTEN]))[0])
    for seq in range(2, BATCHES + 1):
        compact_overdue(seeded.app, stream_of(pipeline))
        outbox = [emission(often, seq), *(emission(f"k{n}", seq) for n in range(100))]
        seeded.batch(pipeline, seq, counts, outbox=outbox, state=[changelog(seeded, pipeline, seq, row)])
    with served() as client:
        yield client


@pytest.mark.long
def test_key_of_large_state_comes_in_time(large: TestClient) -> None:
    often, never = keys_of(np.array([OFTEN, NEVER])).to_pylist()
    seconds = {}
    for key in (often, never, "nobody"):
        for more in ("", f"&batch={BATCHES // 2}", f"&before={BATCHES // 2}"):
            path = f"/pipelines/availability/keys?key={quote(key)}{more}"
            began, began_processor = time.perf_counter(), time.process_time()
            answer = large.get(path)
            took = time.perf_counter() - began
            seconds[path] = time.process_time() - began_processor
            assert answer.status_code == 200
            assert ("The stage has no state of this key" in answer.text) == (key == "nobody")
            print(f"{took:6.3f} s, {seconds[path]:6.3f} s of a processor: {path}")
    # of a processor: files are in memory, and other tests must not lengthen it
    assert max(seconds.values()) < 2
