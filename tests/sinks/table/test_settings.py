"""Where the table of a sink may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tidegate.errors import SinkRefused
from tidegate.ledger import Stream


def check(folder: Path, path: Path) -> None:
    committed = Committed(folder, f"  - {{kind: table, path: {path}}}")
    for sink in committed.app.sinks(committed.stream, committed.pipeline):
        sink.check_settings()


@pytest.mark.parametrize("below", ["", "visitors", "visitors/g1/first/state"])
def test_a_table_over_the_state_is_refused(tmp_path: Path, below: str) -> None:
    with pytest.raises(SinkRefused, match="overlap"):
        check(tmp_path, tmp_path / "lake" / below)


def test_table_over_another_pipelines_state_is_refused(tmp_path: Path) -> None:
    committed = Committed(tmp_path, f"  - {{kind: table, path: {tmp_path}/lake/orders/out}}")
    committed.app.ledger.acquire(Stream("orders", 1), "test")
    for sink in committed.app.sinks(committed.stream, committed.pipeline):
        with pytest.raises(SinkRefused, match="of the pipeline orders overlap"):
            sink.check_settings()


@pytest.mark.parametrize("lake", ["s3://lake", "file:///lake"])
def test_table_over_the_state_is_always_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: str
) -> None:
    committed = Committed(tmp_path, "  - {kind: table, path: orders/out}")
    committed.app.ledger.acquire(Stream("orders", 1), "test")
    (sink,) = committed.app.sinks(committed.stream, committed.pipeline)
    in_store = replace(sink.context, lake=replace(sink.context.lake, root=lake))
    monkeypatch.setattr(sink, "context", in_store)
    with pytest.raises(SinkRefused, match="overlap"):
        sink.check_settings()


def test_a_linked_folder_over_the_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "lake", target_is_directory=True)
    with pytest.raises(SinkRefused, match="overlap"):
        check(tmp_path, tmp_path / "linked" / "visitors")


def test_a_table_beside_the_state_is_taken(tmp_path: Path) -> None:
    check(tmp_path, tmp_path / "lake" / "out")
    check(tmp_path, tmp_path / "elsewhere")
