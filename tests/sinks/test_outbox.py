"""The outbox is read in one order, that of its manifest, from any place on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.batch.committed import Committed
from tidegate.errors import LakeDamaged
from tidegate.sinks import outbox as module
from tidegate.sinks.outbox import POSITION, Outbox
from tidegate.storage import DataFile, datafile
from tidegate.storage.datafile import RowWriter

SQLITE = "sqlite://"


def outbox(folder: Path, *files: list[tuple[str, int]]) -> Outbox:
    committed = Committed(folder, "  - {kind: table}", SQLITE)
    store = committed.app.lake(committed.stream).store
    written: list[DataFile] = []
    for number, rows in enumerate(files):
        keys, ordinals = ([row[at] for row in rows] for at in (0, 1))
        table = pa.table({"other": keys, "ordinal": ordinals, "key": keys, "timestamp": ordinals})
        with RowWriter(store, f"outbox/{number}.parquet", "outbox", "second") as writer:
            for batch in table.to_batches(max_chunksize=2):
                writer.write(batch)
        assert writer.file is not None
        written.append(writer.file)
    stage = committed.pipeline.stages[-1]
    return Outbox(committed.compute(1, {}), stage, "first", store, tuple(written))


def rows(stored_outbox: Outbox, skip: int = 0) -> list[tuple[str, int]]:
    return [
        (row["key"], row["ordinal"])
        for batch in stored_outbox.batches(["key", "ordinal"], skip)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_rows_are_read_as_stored_from_any_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(datafile, "ROW_GROUP_ROWS", 2)
    stored = [
        [("c", 0), ("a", 0), ("a", 1), ("a", 2), ("b", 0)],
        [("b", 1), ("d", 0), ("e", 0)],
        [("z", 0)],
    ]
    stored_outbox = outbox(tmp_path, *stored)
    expected = [row for file in stored for row in file]
    for skip in range(len(expected) + 2):
        assert rows(stored_outbox, skip) == expected[skip:]


@pytest.mark.parametrize("columns", [["key"], ["key", POSITION]])
def test_outbox_without_files_has_no_emissions(tmp_path: Path, columns: list[str]) -> None:
    assert [*outbox(tmp_path).batches(columns)] == []


def test_columns_are_read_in_the_requested_order(tmp_path: Path) -> None:
    stored_outbox = outbox(tmp_path, [("a", 0)], [("b", 1), ("a", 0)])
    for columns in (["key", "ordinal"], ["ordinal", "key"]):
        assert {tuple(batch.schema.names) for batch in stored_outbox.batches(columns)} == {tuple(columns)}


@pytest.mark.parametrize(
    ("files", "emitted", "shards"),
    [
        *((10, 999_999, 1), (10, 1_999_999, 1), (10, 2_000_000, 2), (10, 5_000_000, 4), (3, 9_000_000, 2)),
        *((100, 7_900_000, 4), (100, 8_000_000, 8), (200, 900_000_000, 64), (0, 0, 1)),
    ],
)
def test_number_of_shards_is_a_power_of_two(files: int, emitted: int, shards: int) -> None:
    counts = [emitted // max(files, 1) + (number < emitted % max(files, 1)) for number in range(files)]
    stored = [
        DataFile("outbox", "s", str(at), count, 1, "", 0, "", least_hash=2 * at, most_hash=2 * at + 1)
        for at, count in enumerate(counts)
    ]
    # only the files count: nothing else is looked at
    assert Outbox(None, None, "first", None, tuple(stored)).shards == shards  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bounds", "outside"),
    [
        ((None, None), None),
        ((0, 9), None),
        ((None, 6), ("d", 7)),
        ((2, None), ("a", 0)),
        ((0, 8), ("e", 9)),
    ],
)
def test_an_emission_outside_of_two_instants_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bounds: tuple[int | None, int | None],
    outside: tuple[str, int] | None,
) -> None:
    monkeypatch.setattr(datafile, "ROW_GROUP_ROWS", 2)
    stored_outbox = outbox(tmp_path, [("a", 0), ("b", 5), ("c", 6), ("d", 7)], [("e", 9)])
    assert stored_outbox.outside("timestamp", *bounds) == outside


@pytest.mark.parametrize("missing", ["manifest-*.json", "*.parquet"])
def test_missing_outbox_halts_and_names_the_file(tmp_path: Path, missing: str) -> None:
    committed = Committed(tmp_path, "  - {kind: table}", SQLITE)
    plan = committed.compute(1, {"first": [("1", 1)], "second": []})
    attempt = committed.app.ledger.attempt(plan.stream, 1)
    assert attempt is not None
    (file,) = tmp_path.rglob(missing)
    file.unlink()
    with pytest.raises(LakeDamaged, match=file.name):
        list(committed.app.outbox(plan, committed.pipeline.stages[0], attempt).batches(["key"]))
