"""The outbox is read in one order, whatever order it is stored in, from any place on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.steps.committed import Committed
from tidegate.errors import Halted
from tidegate.steps import outbox as module
from tidegate.steps.outbox import Outbox

SQLITE = "sqlite://"


def outbox(folder: Path, *files: list[tuple[str, int]]) -> Outbox:
    paths = []
    for number, rows in enumerate(files):
        path = str(folder / f"{number}.parquet")
        keys, ordinals = ([row[at] for row in rows] for at in (0, 1))
        pq.write_table(pa.table({"other": keys, "ordinal": ordinals, "key": keys}), path)
        paths.append(path)
    committed = Committed(folder, "  - {kind: table}", SQLITE)
    plan = committed.compute(1, {})
    return Outbox(plan, committed.pipeline.stages[-1], "first", 1, tuple(paths))


def rows(found: Outbox, skip: int = 0) -> list[tuple[str, int]]:
    return [
        (row["key"], row["ordinal"])
        for batch in found.batches(["key", "ordinal"], skip)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_rows_come_by_file_key_and_ordinal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    stored = [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    found = outbox(tmp_path, stored, [("b", 1), ("b", 0), ("a", 0)], [("z", 0)])
    expected = [*stored, ("a", 0), ("b", 0), ("b", 1), ("z", 0)]
    assert rows(found) == expected
    for skip in range(len(expected) + 2):
        assert rows(found, skip) == expected[skip:]


def test_a_file_that_is_in_order_is_not_read_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the whole file was read")

    monkeypatch.setattr(module.pq, "read_table", refuse)
    assert len(rows(outbox(tmp_path, [(f"{n:05d}", 0) for n in range(25_000)]))) == 25_000


def test_the_columns_come_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    found = outbox(tmp_path, [("a", 0)], [("b", 1), ("a", 0)])
    for columns in (["key", "ordinal"], ["ordinal", "key"]):
        assert {tuple(batch.schema.names) for batch in found.batches(columns)} == {tuple(columns)}


def test_an_outbox_that_is_gone_halts(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}", SQLITE)
    plan = committed.compute(1, {}, emitted=3)
    attempt = committed.app.ledger.attempt(plan.stream, 1)
    assert attempt is not None
    with pytest.raises(Halted, match="3 emissions of first"):
        committed.app.outbox(plan, committed.pipeline.stages[0], attempt)
