"""A program: the same batches on a lake in S3 and on one on a disk, and what is done to a lake beside them.

Prints what came of both, as JSON. What goes wrong on the way, a store that refuses and writers that come too
late, goes wrong in S3 only. See `test_object_store`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner
from deltalake import DeltaTable

from tests.sessions import whole_batch
from tests.storage.s3_server import BUCKET, S3Server, s3_server
from tests.world import World
from tidegate import inspect, maintenance
from tidegate.app import App
from tidegate.app.tables import catch_up_tables
from tidegate.batch.compute import left_before
from tidegate.cli import cli
from tidegate.errors import Fenced, Transient
from tidegate.ledger import Attempt
from tidegate.spark.session import open_session
from tidegate.storage import attempt_name
from tidegate.storage.delta_tables import SharedDeltaTable
from tidegate.storage.manifest import Kind

TABLES: tuple[tuple[Kind, str], ...] = (
    *(("state", "changes"), ("state", "closings")),
    *(("outbox", "changes"), ("outbox", "closings")),
)
FAR_FUTURE_SECONDS = 100 * 24 * 3600.0
WRITES = ("/changes/state/_files/", "/closings/outbox/_files/", "/manifests/")
"""Which files the store refuses, one kind after the other."""


class Batches:
    """A world whose lake is at a root."""

    def __init__(self, world: World, root: str) -> None:
        self.world = world
        self.environment = world.environment | {"TIDEGATE_LAKE": root}
        world.app = App.from_environment(self.environment)
        self.results: dict[str, Any] = {}

    def third(self, attempt: Callable[[Callable[[], object]], None]) -> None:
        """A third batch; `attempt` gets what runs it."""
        self.world.send(*whole_batch.third_records())
        attempt(lambda: self.world.run("third", clock_ms=whole_batch.T + whole_batch.THIRD_CLOCK))

    def look(self, when: str) -> None:
        """Tell what readers see."""
        world = self.world
        self.results[when] = whole_batch.nameless(
            world,
            {
                "state": {
                    stage: inspect.read_state(world.app, world.stream, stage=stage).to_pylist()
                    for stage in whole_batch.STAGES
                },
                "command": [self._command("state"), self._command("state", "--stage", "changes")],
                "tables": [self._table(kind, stage) for kind, stage in TABLES],
                "damaged": [str(error) for error in inspect.damaged_files(world.app, world.stream)[1]],
            },
        )

    def maintain(self) -> None:
        """Compact the state; then remove, as if in a hundred days, all that nobody reads."""
        app, stream = self.world.app, self.world.stream
        compaction = maintenance.compact_state(app, stream)
        self.results["compaction"] = [compaction.note, compaction.before.rows, compaction.after.rows]
        self.look("after compaction")
        cleaned = maintenance.clean(app, stream, time.time() + FAR_FUTURE_SECONDS)
        self.results["given up"] = cleaned.given_up
        self.look("after cleaning")

    def _command(self, *arguments: str) -> list[Any]:
        command = [arguments[0], "availability", *arguments[1:], "--json"]
        result = CliRunner().invoke(cli, command, env=self.environment)
        return [result.exit_code, result.stdout]

    def _table(self, kind: Kind, stage: str) -> list[str]:
        lake = self.world.app.lake(self.world.stream)
        table = DeltaTable(lake.store.uri(lake.table(kind, stage)), storage_options=lake.store.delta_options)
        return sorted(map(repr, table.to_pyarrow_table().to_pylist()))


def main(servers: str, folder: str) -> None:
    """Both lakes; what came of each, and what went wrong in S3."""
    with s3_server(Path(folder) / "s3") as server:
        os.environ |= server.environment()
        spark = open_session("local[2]")

        def batches(name: str, root: str) -> Batches:
            home = Path(folder) / name
            home.mkdir()
            made = Batches(World(servers, home, lambda _: spark), root)
            made.results["two batches"] = whole_batch.compute(made.world)
            return made

        on_disk = batches("disk", f"{folder}/lake")
        on_disk.third(lambda run: run())
        in_store = batches("store", f"s3://{BUCKET}/a lake")
        wrong: dict[str, Any] = {}
        in_store.third(lambda run: wrong.update(_disturbed(in_store.world, server, run)))
        for lake in (on_disk, in_store):
            lake.look("after three batches")
            lake.maintain()
        objects = [path for path in (server.folder / BUCKET).rglob("*") if path.is_file()]
        wrong["stale files"] = [str(path) for path in objects if wrong["stale name"] in str(path)]
        spark.stop()
    print(json.dumps({"disk": on_disk.results, "store": in_store.results, "wrong": wrong}))


def _disturbed(world: World, server: S3Server, run: Callable[[], object]) -> dict[str, Any]:
    """The batch with a store that refuses, until it does not, and with writers of each kind that are late."""
    refusals = []
    for path in WRITES:
        fault = server.fault("fail", "PUT", path, times=1_000)
        try:
            run()
        except Transient as error:
            refusals.append([type(error).__name__, str(error), fault.met > 1])
        server.faults.clear()
    plan = world.app.ledger.plan(world.stream, 3)
    assert plan is not None
    zombie = world.app.ledger.acquire(plan.stream, "third")
    with _late_table_writers(world) as late:
        run()
    name = attempt_name(plan.seq, zombie.lease.epoch)
    before = left_before(world.app, world.app.ledger, plan)
    computed = world.app.compute(plan, before, name, world.open_session)
    manifest = world.app.write_manifest(plan.stream, computed.manifest)
    attempt = Attempt(plan.stream, plan.seq, manifest, computed.counts, times=computed.times)
    stale = ""
    for act in (lambda: zombie.add_attempt(attempt), lambda: zombie.commit(plan, attempt)):
        try:
            act()
        except Fenced as error:
            stale += f"{error} "
    return {"refusals": refusals, "late writers": late, "stale": stale, "stale name": name}


@contextmanager
def _late_table_writers(world: World) -> Iterator[list[str]]:
    """Whoever writes to a table's log has been overtaken by another between its look and its write. Gives the
    tables' folders."""
    late: list[str] = []
    write = SharedDeltaTable.write

    def overtaken(table: SharedDeltaTable, *arguments: Any) -> None:
        if table.folder not in late:
            late.append(table.folder)
            catch_up_tables(world.app, world.stream, [world.pipeline])
        write(table, *arguments)

    with patch.object(SharedDeltaTable, "write", overtaken):
        yield late


if __name__ == "__main__":
    main(*sys.argv[1:])
