"""Generations that share an Iceberg table: promoted, taken back, killed meanwhile, erased."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from copy import copy
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.erasure.canary import traces_of
from tests.generations.two_generations import NEW, OLD, Beside
from tests.sinks.iceberg.lakehouse import Lakehouse, duck
from tidegate import failpoints
from tidegate.erasure import erase, plan_erasure, requested_keys
from tidegate.errors import TidegateError
from tidegate.ledger import Stream

KEY = "canary-4711"
TABLE = "shop.seconds"
APPEND = f"  - {{kind: iceberg, table: {TABLE}}}"
UPSERT = f"  - {{kind: iceberg, table: {TABLE}, mode: upsert}}"
POINTS = ["iceberg.read_progress", "iceberg.write", "iceberg.commit", "iceberg.flush"]


def _properties(folder: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def beside_in(folder: Path, sinks: str = APPEND) -> Beside:
    return Beside(folder, sinks, iceberg=json.dumps(_properties(folder)))


def rows(beside: Beside) -> list[tuple[str, int, str, int]]:
    """Return stream, batch, key and value of the table's rows."""
    table = SqlCatalog("default", **_properties(beside.old.folder)).load_table(TABLE)
    query = f"SELECT stream, seq, key, m FROM iceberg_scan('{table.metadata_location}')"
    return [(stream, seq, key, value) for stream, seq, key, value in duck(query)]


def test_promotion_and_rollback_append_each_batch_once(tmp_path: Path) -> None:
    beside = beside_in(tmp_path)
    beside.fill()
    assert rows(beside) == OLD
    beside.promote(beside.new)
    assert rows(beside) == [*OLD, *NEW]
    beside.decide(beside.old, 3, [("a", 3)])
    beside.decide(beside.new, 3, [("d", 30)])
    assert rows(beside) == [*OLD, *NEW, ("visitors/2", 3, "d", 30)]
    beside.rollback()
    assert rows(beside) == [*OLD, ("visitors/1", 3, "a", 3), *NEW, ("visitors/2", 3, "d", 30)]


def test_promotion_writes_over_upserted_rows(tmp_path: Path) -> None:
    beside = beside_in(tmp_path, UPSERT)
    beside.fill()
    beside.promote(beside.new)
    assert rows(beside) == [NEW[1], NEW[2], NEW[3]]
    beside.decide(beside.new, 3, [("b", None)])
    assert rows(beside) == [NEW[2], NEW[3]]
    beside.rollback()
    beside.decide(beside.old, 3, [("b", 3)])
    assert rows(beside) == [("visitors/1", 3, "b", 3), NEW[2], NEW[3]]


@pytest.mark.parametrize("action", ["raise", "lose"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.sample(1)
def test_interrupted_promotion_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, action: str
) -> None:
    beside = beside_in(tmp_path)
    beside.fill()
    monkeypatch.setattr("tidegate.failpoints._hits", Counter())
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"{point}={action}")
    with suppress(failpoints.FailpointRaised, failpoints.ReplyLost, TidegateError):
        beside.promote(beside.new, "promoter")
    assert failpoints._hits[point]
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    for stream in (beside.old.stream, beside.new.stream):
        beside.old.app.ledger.acquire(stream, "promoter").release()  # a killed one's lease would run out
    beside.promote(beside.new, "promoter")
    assert (beside.in_charge, rows(beside)) == (2, [*OLD, *NEW])


@pytest.mark.parametrize(
    "fault", ["iceberg.commit=kill@2", "iceberg.commit=kill_after@1", "iceberg.write=kill@2"]
)
@pytest.mark.process
@pytest.mark.sample(1)
def test_killed_promotion_is_finished_by_the_next(tmp_path: Path, fault: str) -> None:
    beside = beside_in(tmp_path, UPSERT)
    beside.fill()
    command = [sys.executable, "-c", "from tidegate.cli import main; main()", "generation", "promote"]
    fired = {"TIDEGATE_FAILPOINTS": fault, "TIDEGATE_FAILPOINTS_FIRED": f"{tmp_path}/fired"}
    environment = os.environ | beside.old.environment | fired
    for code in (-signal.SIGKILL, 0):
        done = subprocess.run([*command, "visitors", "2"], env=environment, check=False, timeout=600)
        assert done.returncode == code
        ledger = beside.old.app.ledger
        for stream in (beside.old.stream, beside.new.stream):
            holder = ledger.lease_holder(stream)
            if holder is not None:
                ledger.acquire(stream, holder).release()
    assert (beside.in_charge, rows(beside)) == (2, [NEW[1], NEW[2], NEW[3]])


def erased(beside: Beside) -> None:
    app = beside.old.app
    planned = plan_erasure(app, "visitors", requested_keys(app, "visitors", None, [KEY]))
    erase(app, planned, "tester", lambda _: None)


@pytest.mark.parametrize("sinks", [APPEND, UPSERT])
@pytest.mark.sample(1)
def test_erasure_takes_what_each_generation_has_sent(tmp_path: Path, sinks: str) -> None:
    beside = beside_in(tmp_path / "home", sinks)
    beside.decide(beside.old, 3, [(KEY, 1), ("e", 1)])
    beside.fill([("c", 30)])
    beside.promote(beside.new)
    beside.decide(beside.new, 4, [(KEY, 40)])
    assert KEY in [key for _, _, key, _ in rows(beside)]
    erased(beside)
    assert traces_of(tmp_path, [KEY]) == {KEY: []}
    left = rows(beside)
    assert ("visitors/1", 3, "e", 1) in left
    assert ("visitors/2", 3, "c", 30) in left
    beside.decide(beside.new, 6, [(KEY, 60)])
    assert ("visitors/2", 6, KEY, 60) in rows(beside)
    beside.rollback()
    beside.decide(beside.old, 5, [("e", 5)])
    assert ("visitors/1", 5, "e", 5) in rows(beside)


def leave_uncommitted(folder: Path, generation: int) -> Path:
    """Leave a file with the key, as if a publisher had died before its commit."""
    written = next(
        file
        for file in sorted(folder.rglob("*.parquet"))
        if "tidegate-visitors-g" in file.name and traces_of(file.parent, [KEY])[KEY]
    )
    name = re.sub(r"visitors-g\d+", f"visitors-g{generation}", written.name)
    return Path(shutil.copy(written, written.with_name(f"0{name}")))


def test_erasure_removes_files_of_dead_publishers(tmp_path: Path) -> None:
    """Generation 1 was replaced, and generation 3 is not in the ledger any more."""
    beside = beside_in(tmp_path / "home", APPEND)
    beside.fill()
    beside.promote(beside.new)
    beside.decide(beside.new, 3, [(KEY, 30)])
    warehouse = tmp_path / "home" / "warehouse"
    for generation in (1, 2, 3):
        leave_uncommitted(warehouse, generation)
    erased(beside)
    assert traces_of(tmp_path, [KEY]) == {KEY: []}


def test_erasure_keeps_files_of_sending_generations(tmp_path: Path) -> None:
    """No generation is in charge: each sends what it decides, and may be about to commit a file."""
    stream = Lakehouse(tmp_path)
    other = copy(stream)
    other.stream = Stream("visitors", 2)
    other.app.ledger.acquire(other.stream, "at work").release()
    stream.decide(1, (KEY, 1), ("a", 1))
    own, sent = (leave_uncommitted(tmp_path, generation) for generation in (1, 2))
    planned = plan_erasure(stream.app, "visitors", requested_keys(stream.app, "visitors", None, [KEY]))
    own_erasures = [erasure for erasure in planned if erasure.stream == stream.stream]
    erase(stream.app, own_erasures, "tester", lambda _: None)
    assert (own.exists(), sent.exists()) == (False, True)
