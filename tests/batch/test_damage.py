"""Files that are missing, short or changed: whoever needs them says which, and `doctor --deep` finds all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.batch.committed import Committed
from tests.world import World, key_of
from tidegate import inspect, maintenance
from tidegate.batch import publish_batch
from tidegate.cli import cli
from tidegate.errors import LakeDamaged


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_page(path: Path) -> None:
    """The last byte of the first column's values: the footer is as it was."""
    column = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    made = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    made.commit(1, {"first": [], "second": [("1", 1)]})
    made.lease.release()
    return made


def data_files(committed: Committed) -> list[Path]:
    return sorted(Path(committed.app.settings.lake).rglob("*.parquet"))


def deep(committed: Committed) -> str:
    return CliRunner().invoke(cli, ["doctor", "--deep", "visitors"], env=committed.environment).output


def test_whole_files_are_said_to_be_whole(committed: Committed) -> None:
    assert "2 files read, each as it was written" in deep(committed)


def test_live_files_stay_whole_after_cleaning(tmp_path: Path) -> None:
    made = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    made.states = {"second": pa.table({"hash": [1], "key": ["k"], "live": [True], "updated_seq": [1]})}
    made.commit(1, {"first": [], "second": []})
    made.lease.release()
    maintenance.compact_state(made.app, made.stream)
    cleaned = maintenance.clean(made.app, made.stream, time.time() + 100 * 24 * 3600)
    assert cleaned.files == 1
    assert "3 files read, each as it was written" in deep(made)  # two manifests, and the snapshot's file


STATE = pa.schema(
    [
        *((name, pa.int64()) for name in ("hash", "window_start", "window_end", "updated_seq")),
        *(("key", pa.string()), ("live", pa.bool_())),
    ]
)


def state_rows(seq: int) -> pa.Table:
    return pa.Table.from_pylist([{"hash": 1, "key": "k", "live": True, "updated_seq": seq}], STATE)


@pytest.fixture
def two_batches(tmp_path: Path) -> Committed:
    made = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    for seq in (1, 2):
        made.states = {"second": state_rows(seq)}
        made.commit(seq, {"first": [], "second": [("1", seq)]})
    made.lease.release()
    return made


READERS: dict[str, tuple[Callable[[Committed], object], str, str]] = {
    "state": (
        lambda made: inspect.read_state(made.app, made.stream),
        "state",
        "The state after batch 2 of visitors/1 needs it",
    ),
    "state as of a batch": (
        lambda made: inspect.read_state(made.app, made.stream, as_of=1),
        "state",
        "The state after batch 1 of visitors/1 needs it",
    ),
    "emissions": (
        lambda made: inspect.read_emissions(made.app, made.stream),
        "outbox",
        "Batch 1 of visitors/1 needs it",
    ),
    "compact": (
        lambda made: maintenance.compact_state(made.app, made.stream),
        "state",
        "The state after batch 2 of visitors/1 needs it",
    ),
}


@pytest.mark.parametrize("damage", [Path.unlink, shorten, change])
@pytest.mark.parametrize("reader", READERS)
def test_damaged_file_is_named_with_its_user(
    two_batches: Committed, reader: str, damage: Callable[[Path], None]
) -> None:
    read, kind, needed_by = READERS[reader]
    (file,) = (path for path in data_files(two_batches) if f"second/{kind}/_files/0000000001" in str(path))
    damage(file)
    with pytest.raises(LakeDamaged, match=rf"{file.name}.*\. {needed_by}") as raised:
        read(two_batches)
    assert raised.value.what.count("needs it") == 1


@pytest.mark.parametrize(
    ("place", "needed_by"),
    [
        ("second/outbox/_files/0000000001", "Batch 1"),
        ("second/outbox/_files/0000000002", "Batch 2"),
        ("second/state/_files/0000000001", "The state after batch 2"),
    ],
)
def test_the_doctor_names_what_needs_a_damaged_file(
    two_batches: Committed, place: str, needed_by: str
) -> None:
    (file,) = (path for path in data_files(two_batches) if place in str(path))
    shorten(file)
    _, (damage,) = inspect.damaged_files(two_batches.app, two_batches.stream)
    assert damage.what.endswith(f". {needed_by} of visitors/1 needs it")


@pytest.mark.parametrize("damage", [Path.unlink, shorten, change])
def test_a_damaged_file_is_found_by_the_doctor(committed: Committed, damage: Callable[[Path], None]) -> None:
    (file,) = data_files(committed)
    damage(file)
    output = deep(committed)
    assert "LakeDamaged" in output
    assert file.parent.name in output.replace("\n", "")


def test_a_changed_manifest_is_found_by_the_doctor(committed: Committed) -> None:
    (file,) = Path(committed.app.settings.lake).rglob("manifest-*.json")
    change(file)
    assert "LakeDamaged" in deep(committed)


def test_publication_without_its_file_names_file_and_batch(
    committed: Committed,
) -> None:
    (file,) = data_files(committed)
    file.unlink()
    plan = committed.app.ledger.plan(committed.stream, 1)
    assert plan is not None
    with pytest.raises(LakeDamaged, match=rf"{file.name}.*Batch 1 of visitors/1 needs it"):
        publish_batch(committed.app, plan, "test")
    assert committed.app.ledger.publications(committed.stream, 1) == {}


@pytest.mark.spark
@pytest.mark.broker
def test_computation_names_a_damaged_file_and_recovers(
    world: World,
) -> None:
    world.stock(1)
    world.run()
    world.stock(0)
    (file,) = (path for path in (world.folder / "lake").rglob("*.parquet") if "/state/" in str(path))
    whole = file.read_bytes()
    for damage in (Path.unlink, shorten, change, change_page):
        damage(file)
        with pytest.raises(LakeDamaged, match=rf"{file.name}.*\. Batch 2 of availability/1 needs it"):
            world.run("r")
        assert world.app.ledger.attempt(world.stream, 2) is None
        file.write_bytes(whole)
    world.run("r")
    assert world.published() == {key_of(): [True, False]}
