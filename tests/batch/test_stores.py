"""Lake or ledger is full, read-only or down: a typed error, nothing half done, and then the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from tests.batch.committed import Committed
from tests.disk import SmallDisk, small_disk
from tests.postgres import PostgresServer
from tests.world import World, key_of
from tidegate import inspect
from tidegate.app import App
from tidegate.batch import commit_batch, publish_batch, validate_batch
from tidegate.cli import cli
from tidegate.errors import LakeUnavailable, LedgerUnavailable, Transient

pytestmark = pytest.mark.process

TABLE = "  - {kind: table, stage: first}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def published(committed: Committed) -> int:
    path = committed.app.lake(committed.stream).table_sink(None)
    return int(DeltaTable(path).to_pyarrow_table().num_rows)


ILLS: dict[str, tuple[Callable[[SmallDisk], None], Callable[[SmallDisk], None]]] = {
    "full": (SmallDisk.fill, SmallDisk.free),
    "read-only": (SmallDisk.make_read_only, lambda disk: disk.make_read_only(False)),
}


@pytest.mark.parametrize(("harm", "cure"), ILLS.values(), ids=ILLS)
def test_table_sink_recovers_from_a_sick_disk(
    tmp_path: Path, disk: SmallDisk, harm: Callable[[SmallDisk], None], cure: Callable[[SmallDisk], None]
) -> None:
    committed = Committed(tmp_path, f"  - {{kind: table, stage: first, path: {disk.folder}/table}}")
    committed.commit(1, {"first": [("1", 1)], "second": []})
    committed.publish(1)
    committed.commit(2, {"first": [("2", 2)], "second": []})
    harm(disk)
    with pytest.raises(LakeUnavailable, match="nothing is lost"):
        committed.publish(2)
    cure(disk)
    assert committed.publish(2) == {f"table:{disk.folder}/table": 1}
    assert DeltaTable(f"{disk.folder}/table").to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize(("harm", "cure"), ILLS.values(), ids=ILLS)
def test_ledger_on_sick_disk_fails_typed_and_recovers(
    tmp_path: Path, disk: SmallDisk, harm: Callable[[SmallDisk], None], cure: Callable[[SmallDisk], None]
) -> None:
    committed = Committed(tmp_path, TABLE, ledger=f"sqlite:///{disk.folder}/ledger.db")
    plan = committed.compute(1, {"first": [("1", 1)], "second": []})
    committed.lease.release()
    validate_batch(committed.app, plan, "test")
    committed.app.ledger._engine.dispose()  # each step is a process of its own
    harm(disk)
    with pytest.raises(LedgerUnavailable, match="nothing is lost"):
        commit_batch(App.from_environment(committed.environment), plan, "test")
    result = CliRunner().invoke(cli, ["doctor"], env=committed.environment)
    assert (result.exit_code, "LedgerUnavailable" in result.output) == (2, True)
    cure(disk)
    commit_batch(committed.app, plan, "test")
    assert committed.app.ledger.head(committed.stream).seq == 1
    assert committed.publish(1) == {"table": 1}
    assert published(committed) == 1


def test_killed_ledger_server_loses_nothing(tmp_path: Path, postgres: PostgresServer) -> None:
    committed = Committed(tmp_path, TABLE, ledger=postgres.new_database())
    plan = committed.compute(1, {"first": [("1", 1)], "second": []})
    with postgres.down():
        for step in (validate_batch, commit_batch, publish_batch):
            with pytest.raises(LedgerUnavailable):
                step(committed.app, plan, "test")
    validate_batch(committed.app, plan, "test")
    with pytest.raises(Transient):
        _die_in_the_commit(committed, postgres)
    assert committed.app.ledger.head(committed.stream).seq == 0
    commit_batch(committed.app, plan, "test")
    assert committed.publish(1) == {"table": 1}
    assert published(committed) == 1


def _die_in_the_commit(committed: Committed, postgres: PostgresServer) -> None:
    lease = committed.app.ledger.acquire(committed.stream, "test")
    with ExitStack() as stack, lease._transaction("commit") as connection:
        connection.exec_driver_sql("UPDATE tidegate_heads SET seq = 1")
        stack.enter_context(postgres.down())


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize(("harm", "cure"), ILLS.values(), ids=ILLS)
def test_lake_on_sick_disk_fails_compute_and_recovers(
    world: World, disk: SmallDisk, harm: Callable[[SmallDisk], None], cure: Callable[[SmallDisk], None]
) -> None:
    world.app = App.from_environment(world.environment | {"TIDEGATE_LAKE": f"{disk.folder}/lake"})
    world.stock(1)
    world.run()
    world.stock(0)
    harm(disk)
    with pytest.raises(LakeUnavailable, match=r"The lake's file .* TIDEGATE_LAKE; .*nothing is lost"):
        world.run("r")
    assert world.app.ledger.head(world.stream).seq == 1
    assert world.published() == {key_of(): [True]}
    cure(disk)
    world.run("r")
    assert world.published() == {key_of(): [True, False]}
    rows = inspect.read_state(world.app, world.stream).to_pylist()
    assert [row["value"]["isAvailable"] for row in rows] == [False]
