"""Executors that die or stand still in the middle of a batch: a program of its own, with a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults import executors
from tidegate_dev.broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]


@pytest.fixture(scope="module")
def results(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("executors")
    program = [sys.executable, "-m", executors.__name__]
    arguments = [broker.bootstrap_servers, str(folder)]
    root = Path(executors.__file__).parents[2]
    done = subprocess.run(
        [*program, *arguments], cwd=root, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_undisturbed_batch_writes_only_manifest_files(results: dict[str, Any]) -> None:
    calm = results["calm"]
    assert [len(rows) for rows in calm["rows"]] == [20, 53, 1]
    assert calm["written"] == calm["named"]


@pytest.mark.parametrize("disturbed", ["lost", "speculated", "retried"])
def test_lost_or_repeated_task_leaves_unnamed_files(results: dict[str, Any], disturbed: str) -> None:
    """And the rows are those of an undisturbed batch."""
    result = results[disturbed]
    assert set(result["written"]) > set(result["named"])
    assert result["rows"] == results["calm"]["rows"]


@pytest.mark.parametrize("disturbed", ["calm", "lost", "speculated", "retried"])
def test_disturbed_executors_send_shards_once(results: dict[str, Any], disturbed: str) -> None:
    expected = sorted([[str(key), '{"m": 1}'], 1] for key in range(20))
    assert results["published"][disturbed] == expected


@pytest.mark.parametrize("step", ["computed", "published"])
def test_executor_faults_really_happened(results: dict[str, Any], step: str) -> None:
    faults = results["published"] if step == "published" else results
    assert faults["killed"] == [True]
    assert faults["stood still"] is True
    assert faults["worker killed"] is True
    assert results["copies"] >= 2
