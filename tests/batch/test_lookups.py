"""A plan pins what its lookups read: a table's version, or the head of another pipeline's state."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.batch.committed import Committed
from tests.manifests import manifest_ref
from tidegate.batch import compute_batch
from tidegate.batch.lookups import check_lookup_tables, pinned_lookups, pinned_tables
from tidegate.errors import LookupMissing, LookupReplaced, PipelineInvalid
from tidegate.ledger import Attempt, LedgerReader, OffsetRange, Promotion, Snapshot, Stream
from tidegate.model.pipeline import Pipeline
from tidegate.spark.lookups import DeltaVersion, StateVersion
from tidegate.yaml.load import parse_pipeline


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    return Committed(tmp_path, "  - {kind: table}", "sqlite://")


def looking_up(committed: Committed, table: str) -> Pipeline:
    text = committed.file.read_text().replace("pipeline: visitors", "pipeline: other")
    read = "on: [customerId], columns: [name]" if table.startswith("/") else "on: [key], columns: [m]"
    return parse_pipeline(f"{text}\nlookup: [{{table: {table}, {read}}}]\n", "other.yaml")


def test_a_delta_table_is_pinned_to_its_version(committed: Committed, tmp_path: Path) -> None:
    path = str(tmp_path / "stores")
    for version in (0, 1):
        write_deltalake(path, pa.table({"customerId": [1], "name": ["x"]}), mode="append")
        assert pinned(committed, path) == {"version": version, "id": str(DeltaTable(path).metadata().id)}


def test_missing_lookup_table_is_named(committed: Committed, tmp_path: Path) -> None:
    with pytest.raises(LookupMissing, match=r"nowhere does not exist.*Write it"):
        pinned_lookups(committed.app, looking_up(committed, str(tmp_path / "nowhere")), {})


def test_lookup_of_a_missing_column_pins_nothing(committed: Committed, tmp_path: Path) -> None:
    path = str(tmp_path / "stores")
    write_deltalake(path, pa.table({"customerId": [1], "title": ["x"]}))
    with pytest.raises(PipelineInvalid, match=r"no column `name`. Its columns are customerId, title"):
        pinned(committed, path)
    batch(committed, 1, 1, events=10)
    reader = looking_up(committed, "visitors/first")
    with pytest.raises(
        PipelineInvalid, match=r"no column `m`. Its columns are key, window_start, window_end, customerId, n"
    ):
        pinned_lookups(committed.app, reader, {})


def batch(committed: Committed, generation: int, seq: int, **offsets: int) -> None:
    """A committed batch of a generation that reads up to these offsets of partition 0 of topics."""
    stream = Stream("visitors", generation)
    ranges = tuple(OffsetRange(topic, 0, 0, end) for topic, end in offsets.items())
    ids = {topic: f"id of {topic}" for topic in offsets}
    planned = replace(committed.planned(seq), stream=stream, run_id=f"run-{generation}-{seq}")
    plan = replace(planned, ranges=ranges, topic_ids=ids)
    lease = committed.app.ledger.acquire(stream, "test")
    lease.add_plan(plan)
    lease.commit(plan, Attempt(stream, seq, manifest_ref(f"g{generation}a{seq}"), {}))


def pinned(committed: Committed, table: str, before: int | None = None) -> Any:
    """Return the pins of a batch that follows one of a generation `before`."""
    pins = {} if before is None else {table: {"generation": before}}
    return pinned_lookups(committed.app, looking_up(committed, table), pins)[table]


def read_from(committed: Committed, before: int | None = None) -> tuple[int, int]:
    pin = pinned(committed, "visitors/second", before)
    return pin["generation"], pin["seq"]


def test_lookup_pins_the_newest_generation_that_caught_up(committed: Committed) -> None:
    batch(committed, 1, 1, events=10)
    batch(committed, 2, 1, events=4)
    assert read_from(committed) == (1, 1)
    batch(committed, 2, 2, events=10)
    assert read_from(committed) == (2, 2)


def test_lookup_never_returns_to_an_older_generation(committed: Committed) -> None:
    batch(committed, 1, 1, events=10)
    batch(committed, 2, 1, events=10)
    batch(committed, 1, 2, events=11)
    assert read_from(committed) == (1, 2)
    assert read_from(committed, before=2) == (2, 1)


def test_newest_caught_up_of_three_generations_is_read(
    committed: Committed,
) -> None:
    batch(committed, 1, 1, events=10)
    batch(committed, 2, 1, events=12)
    batch(committed, 3, 1, events=11)
    assert read_from(committed) == (2, 1)


def test_generation_opened_while_pinning_is_not_read(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(committed, 1, 1, events=10)
    listed, second = LedgerReader.streams, Stream("visitors", 2)

    def streams(reader: LedgerReader) -> list[Stream]:
        if second not in listed(reader):
            committed.app.ledger.open_generation(second, in_charge=1)
            batch(committed, 2, 1, events=10)
        return listed(reader)

    monkeypatch.setattr(LedgerReader, "streams", streams)
    assert read_from(committed) == (1, 1)


def test_generation_lacking_a_partition_is_behind(committed: Committed) -> None:
    batch(committed, 1, 1, events=10, more=1)
    batch(committed, 2, 1, events=10)
    assert read_from(committed) == (2, 1)  # it does not read that topic at all
    batch(committed, 2, 2, events=10, more=0)
    assert read_from(committed) == (1, 1)


def test_replaced_lookup_table_halts_and_is_named(committed: Committed, tmp_path: Path) -> None:
    path = str(tmp_path / "stores")
    rows = pa.table({"customerId": [1], "name": ["x"]})
    write_deltalake(path, rows)
    plan = replace(committed.compute(1, {}), lookups={path: pinned(committed, path)})
    write_deltalake(path, rows, mode="append")
    check_lookup_tables(plan)
    shutil.rmtree(path)
    write_deltalake(path, rows)
    with pytest.raises(LookupReplaced, match=r"stores is not the one that batch 1 of visitors/1 .*version 0"):
        check_lookup_tables(plan)
    shutil.rmtree(path)
    with pytest.raises(LookupReplaced, match="stores"):
        check_lookup_tables(plan)


def test_replaced_table_halts_before_and_after_reading(
    committed: Committed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "stores")
    rows = pa.table({"customerId": [1], "name": ["x"]})
    write_deltalake(path, rows)
    plan = committed.compute(1, {})
    lease = committed.app.ledger.acquire(committed.stream, "test")
    lease.drop_plan()
    plan = replace(plan, ranges=(), lookups={path: pinned(committed, path)})
    lease.add_plan(plan)
    lease.release()

    def computed(*_: Any) -> Any:
        shutil.rmtree(path)
        write_deltalake(path, rows)
        return SimpleNamespace(counts={}, times={})

    monkeypatch.setattr(type(committed.app), "compute", computed)
    for _ in range(2):  # the first replaces it while it is read, the second finds it so
        with pytest.raises(LookupReplaced):
            compute_batch(committed.app, plan, plan.run_id, lambda: pytest.fail("there is no Spark"))
    assert committed.app.ledger.attempt(committed.stream, 1) is None


def test_pinned_state_survives_any_snapshot(committed: Committed) -> None:
    values = pa.table({"hash": [1], "key": ["k"], "value": [{"m": 1}], "live": [True], "updated_seq": [1]})
    committed.states = {"second": values}
    for seq in (1, 2, 3):
        committed.commit(seq, {})
    app, ledger = committed.app, committed.app.ledger
    plan = ledger.plan(committed.stream, 1)
    assert plan is not None
    pin = {"pipeline": "visitors", "generation": 1, "seq": 2, "stage": "second"}
    pinned = replace(plan, lookups={"visitors/second": pin, "/a/table": {"version": 1}})

    def read_through() -> list[str]:
        tables = pinned_tables(app, ledger, pinned)
        assert tables["/a/table"] == DeltaVersion("/a/table", 1)
        state = tables["visitors/second"]
        assert isinstance(state, StateVersion)
        return [file.path.split("/")[-2] for file in state.files]

    def fold(seq: int, after: int) -> str:
        name = f"snapshot-{seq:010d}-00000000"
        manifest = app.write_manifest(committed.stream, committed.written(seq, name, {}))
        assert ledger.add_snapshot(Snapshot(committed.stream, seq, manifest), after)
        return name

    assert read_through() == [committed.attempt_name(1), committed.attempt_name(2)]
    second = fold(2, after=0)
    assert read_through() == [second]
    fold(3, after=2)
    assert read_through() == [second]


def test_pinned_state_of_a_dropped_generation_halts(committed: Committed) -> None:
    batch(committed, 1, 1, events=10)
    pin = {"visitors/second": pinned(committed, "visitors/second")}
    batch(committed, 2, 1, events=10)
    ledger = committed.app.ledger
    old, new = (ledger.acquire(Stream("visitors", generation), "test") for generation in (1, 2))
    new.promote(Promotion("visitors", 1, 2, first_seq=1, replaced_seq=1, is_net=False, run_id="r"), old.lease)
    ledger.acquire(old.stream, "test").drop()
    with pytest.raises(LookupMissing, match="after batch 1 of visitors/1, which the ledger does not"):
        pinned_tables(committed.app, ledger, replace(committed.planned(1), lookups=pin))


def test_lookup_of_pipeline_without_batch_says_run_it(committed: Committed) -> None:
    committed.compute(1, {})
    with pytest.raises(LookupMissing, match="tidegate run visitors"):
        pinned_lookups(committed.app, looking_up(committed, "visitors/second"), {})


def test_lookup_of_missing_stage_lists_existing_stages(
    committed: Committed,
) -> None:
    committed.commit(1, {})
    with pytest.raises(LookupMissing, match="first, second"):
        pinned_lookups(committed.app, looking_up(committed, "visitors/third"), {})


def test_lookup_of_windowed_state_needs_the_window(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    text = committed.file.read_text()
    committed.file.write_text(text.replace("{name: first,", "{name: first, window: {tumbling: 1h},"))
    committed.commit(1, {})
    with pytest.raises(PipelineInvalid, match=r"a row for each window of a key.*Add `window_start`"):
        pinned_lookups(committed.app, looking_up(committed, "visitors/first"), {})
    # the stage beside it has none
    assert pinned_lookups(committed.app, looking_up(committed, "visitors/second"), {})


def test_lookup_of_a_bounded_buffer_is_refused(committed: Committed) -> None:
    text, bounded = committed.file.read_text(), "{on: time_limit, after: 1m, buffer: {max_records: 5}}"
    committed.file.write_text(text.replace("emit: {on: update}", f"emit: {bounded}"))
    committed.commit(1, {})
    with pytest.raises(PipelineInvalid, match=r"an entry for each partition.*`when_full: spill`"):
        pinned_lookups(committed.app, looking_up(committed, "visitors/first"), {})
    assert pinned_lookups(committed.app, looking_up(committed, "visitors/second"), {})
