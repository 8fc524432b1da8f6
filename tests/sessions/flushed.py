"""A program that runs a batch step by step, with a mark between them in a trace of its system calls.

Prints the files of the batch, as JSON. See `test_flushed`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.world import NOW_MS, World
from tidegate.app import App
from tidegate.batch import Trigger, commit_batch, compute_batch, plan_batch, validate_batch
from tidegate.ledger import LeasedLedger
from tidegate.spark.session import open_session
from tidegate.storage.manifest import manifest_file


def main(servers: str, folder: str) -> None:
    """One batch; a mark is a file that is opened."""
    home, marks = Path(folder) / "home", Path(folder) / "marks"
    home.mkdir()
    marks.mkdir()
    spark = open_session("local[2]")
    world = World(servers, home, lambda _: spark)
    lake = f"{folder}/new/lake"
    world.app = App.from_environment(world.environment | {"TIDEGATE_LAKE": lake})
    world.stock(1, 0)
    world.send({"value": b"{no json", "key": b"x"})
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    add_attempt = LeasedLedger.add_attempt

    def marked(ledger: LeasedLedger, *arguments: Any) -> None:
        (marks / "written").touch()
        add_attempt(ledger, *arguments)

    with patch.object(LeasedLedger, "add_attempt", marked):
        attempt = compute_batch(world.app, plan, "r", world.open_session)
    (marks / "computed").touch()
    validate_batch(world.app, plan, "r")
    (marks / "validated").touch()
    commit_batch(world.app, plan, "r")
    (marks / "committed").touch()
    manifest = world.app.manifest(plan.stream, attempt.manifest)
    paths = [f"{lake}/{file.path}" for file in manifest.files]
    folder = world.app.lake(plan.stream).manifests(manifest.name)
    of_manifest = f"{lake}/{folder}/{manifest_file(attempt.manifest.digest)}"
    spark.stop()
    print(
        json.dumps({"files": paths, "manifest": of_manifest, "lake": lake, "ledger": f"{home}/ledger.db-wal"})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
