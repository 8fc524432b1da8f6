"""Whole batches on a lake in S3 give what they give on a disk, also when the store refuses for a while."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.sessions import object_store
from tests.sessions.object_store import TABLES, WRITES
from tidegate_dev.broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]

Results = dict[str, Any]


@pytest.fixture(scope="module")
def results(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("object-store")
    program = [sys.executable, "-m", object_store.__name__, broker.bootstrap_servers, str(folder)]
    done = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    results: Results = json.loads(done.stdout.splitlines()[-1])
    return results


def test_object_store_batches_equal_disk_batches(results: Results) -> None:
    assert len(results["disk"]["two batches"]["published"]["closings-world"]) == 4
    assert len(results["disk"]["two batches"]["appended"]) > 40
    assert results["store"]["two batches"] == results["disk"]["two batches"]


def test_refusing_store_is_transient_and_named(results: Results) -> None:
    assert [(name, tried_again) for name, _, tried_again in results["wrong"]["refusals"]] == [
        ("LakeUnavailable", True)
    ] * len(WRITES)
    assert all(path in what for path, (_, what, _) in zip(WRITES, results["wrong"]["refusals"], strict=True))


def test_run_after_a_refusal_equals_an_undisturbed(results: Results) -> None:
    disk, store = (results[name]["after three batches"] for name in ("disk", "store"))
    assert disk["state"]["changes"] != results["disk"]["two batches"]["state"]["changes"]
    assert [code for code, _ in disk["command"]] == [0, 0]
    assert all(disk["tables"])
    assert disk["damaged"] == []
    assert store == disk


def test_late_table_writers_repeat_nothing(results: Results) -> None:
    # what the late ones wrote is compared above; of the windows, which open and close in it, no state is left
    changed = {f"availability/g1/{stage}/{kind}" for kind, stage in TABLES} - {
        "availability/g1/closings/state"
    }
    assert set(results["wrong"]["late writers"]) == changed


def test_stale_attempt_is_refused_and_removed(results: Results) -> None:
    assert results["wrong"]["stale"].count("taken over") == 2
    assert results["wrong"]["stale files"] == []


def test_maintenance_on_object_store_equals_disk(results: Results) -> None:
    disk, store = results["disk"], results["store"]
    assert disk["compaction"][0] == "compacted"
    assert disk["given up"] == 3
    for when in ("compaction", "given up", "after compaction", "after cleaning"):
        assert store[when] == disk[when]
    assert disk["after cleaning"]["damaged"] == []
    for when in ("after compaction", "after cleaning"):
        assert disk[when]["state"] == disk["after three batches"]["state"]
