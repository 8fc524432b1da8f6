"""A generation that begins with another's state: as of a batch, where that ended, in files of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.generations.two_generations import Beside
from tests.storage.files_for_tests import SCHEMA, row
from tidegate.app.root import state_after
from tidegate.errors import Halted, PipelineChanged
from tidegate.generations import begin_from, compare_generations
from tidegate.storage.datafile import read_files


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    """The old one has a state after batch 3 that batch 4 has changed since."""
    beside = Beside(tmp_path)
    for seq, rows in ((3, [row(1, 3), row(2, 3)]), (4, [row(1, 4), row(3, 4)])):
        beside.old.states = {"first": pa.Table.from_pylist(rows, SCHEMA)}
        beside.decide(beside.old, seq, [("a", seq)])
    beside.old.states = {}
    return beside


def state(beside: Beside) -> list[dict[str, Any]]:
    app, stream = beside.new.app, beside.new.stream
    (files,) = state_after(app, stream, app.ledger.state_manifests(stream)).values()
    assert all(file.path.startswith("visitors/g2/") for file in files)
    return read_files(app.lake(stream).store, files).to_pylist()


def begin(beside: Beside, seq: int) -> None:
    begin_from(beside.new.app, beside.new.pipeline, beside.old.stream, seq, "new")


@pytest.mark.parametrize(("seq", "values"), [(3, [3001, 3002]), (4, [4001, 3002, 4003])])
def test_origin_has_state_and_offsets_of_a_batch(beside: Beside, seq: int, values: list[int]) -> None:
    begin(beside, seq)
    assert [(row["value"]["n"], row["updated_seq"]) for row in state(beside)] == [(n, 1) for n in values]
    ledger, stream = beside.new.app.ledger, beside.new.stream
    head, last = ledger.head(stream), ledger.attempt(beside.old.stream, seq)
    assert (head.seq, head.offsets, head.clocks) == (1, {("events", 0): seq}, {("events", 0): seq * 1000})
    assert last is not None
    assert ledger.times(stream) == last.times
    assert ledger.origin(stream) == (beside.old.stream, seq)
    assert beside.new.publish(1) == {}


def test_records_after_the_origin_are_read_again(beside: Beside) -> None:
    begin(beside, 3)
    beside.new.states = {"first": pa.Table.from_pylist([row(1, 2)], SCHEMA)}
    beside.decide(beside.new, 2, [])
    newest = state(beside)
    assert {(row["key"], row["updated_seq"]) for row in newest} == {("k1", 1), ("k2", 1), ("k1", 2)}


def test_output_continues_from_the_origins_last_emissions(beside: Beside) -> None:
    begin(beside, 3)
    beside.decide(beside.new, 2, [])
    beside.decide(beside.new, 3, [])
    beside.decide(beside.new, 4, [("a", 4)])
    comparison = compare_generations(beside.new.app, beside.old.stream, beside.new.stream)
    assert [(sink.entries.same, sink.entries.total) for sink in comparison.sinks] == [(2, 0), (2, 0)]
    beside.promote(beside.new, is_net=True)
    assert [row for row in beside.sent() if row[0] == "visitors/2"] == []


def test_origin_with_unfit_file_leaves_generation_empty(
    beside: Beside,
) -> None:
    text = beside.new.file.read_text()
    beside.new.file.write_text(text.replace("emit: {on: change}", "emit: {on: update}"))
    with pytest.raises(PipelineChanged, match="let the generation begin empty"):
        begin(beside, 3)
    assert beside.new.app.ledger.head(beside.new.stream).seq == 0


def test_started_generation_cannot_take_an_origin(beside: Beside) -> None:
    beside.decide(beside.new, 1, [])
    with pytest.raises(Halted, match="has begun already"):
        begin(beside, 3)
