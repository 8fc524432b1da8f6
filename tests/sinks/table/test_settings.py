"""Where the table of a sink may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocol.committed import Committed
from tidegate.errors import SinkRefused


def check(folder: Path, path: Path) -> None:
    committed = Committed(folder, f"  - {{kind: table, path: {path}}}")
    for sink in committed.app.sinks(committed.stream, committed.pipeline):
        sink.check_settings()


@pytest.mark.parametrize("below", ["", "visitors", "visitors/g1/first/state"])
def test_a_table_over_the_state_is_refused(tmp_path: Path, below: str) -> None:
    with pytest.raises(SinkRefused, match="overlap"):
        check(tmp_path, tmp_path / "lake" / below)


def test_a_linked_folder_over_the_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "lake", target_is_directory=True)
    with pytest.raises(SinkRefused, match="overlap"):
        check(tmp_path, tmp_path / "linked" / "visitors")


def test_a_table_beside_the_state_is_taken(tmp_path: Path) -> None:
    check(tmp_path, tmp_path / "lake" / "out")
    check(tmp_path, tmp_path / "elsewhere")
