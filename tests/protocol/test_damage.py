"""Files that are missing, short or changed: whoever needs them says which, and `doctor --deep` finds all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.protocol.committed import Committed
from tidegate import maintenance, protocol
from tidegate.cli import cli
from tidegate.errors import LakeDamaged


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    made = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    made.commit(1, {"first": [], "second": [("1", 1)]})
    made.held.release()
    return made


def data_files(committed: Committed) -> list[Path]:
    return sorted(Path(committed.app.settings.lake).rglob("*.parquet"))


def deep(committed: Committed) -> str:
    return CliRunner().invoke(cli, ["doctor", "--deep", "visitors"], env=committed.environment).output


def test_whole_files_are_said_to_be_whole(committed: Committed) -> None:
    assert "2 files are as they were written" in deep(committed)


def test_files_are_whole_after_those_that_nobody_reads_were_cleaned_away(tmp_path: Path) -> None:
    made = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    made.states = {"second": pa.table({"hash": [1], "key": ["k"], "live": [True], "updated_seq": [1]})}
    made.commit(1, {"first": [], "second": []})
    made.held.release()
    maintenance.compact_state(made.app, made.stream)
    cleaned = maintenance.clean(made.app, made.stream, time.time() + 100 * 24 * 3600)
    assert cleaned.files == 1
    assert "3 files are as they were written" in deep(made)  # two manifests, and the snapshot's file


@pytest.mark.parametrize("damage", [Path.unlink, shorten, change])
def test_a_damaged_file_is_found_by_the_doctor(committed: Committed, damage: Callable[[Path], None]) -> None:
    (file,) = data_files(committed)
    damage(file)
    said = deep(committed)
    assert "LakeDamaged" in said
    assert file.parent.name in said.replace("\n", "")


def test_a_changed_manifest_is_found_by_the_doctor(committed: Committed) -> None:
    (file,) = Path(committed.app.settings.lake).rglob("manifest.json")
    change(file)
    assert "LakeDamaged" in deep(committed)


def test_a_publication_that_lacks_a_file_names_it_and_the_batch_and_publishes_nothing(
    committed: Committed,
) -> None:
    (file,) = data_files(committed)
    file.unlink()
    plan = committed.app.ledger.plan(committed.stream, 1)
    assert plan is not None
    with pytest.raises(LakeDamaged, match=rf"{file.name}.*Batch 1 of visitors/1 needs it"):
        protocol.publish_batch(committed.app, plan, "test")
    assert committed.app.ledger.publications(committed.stream, 1) == {}
