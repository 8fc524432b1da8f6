"""Executors that die or stand still in the middle of a batch: a program of its own, with a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults import executors
from tidegate.local.broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]


@pytest.fixture(scope="module")
def found(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
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


def test_a_batch_whose_executor_is_killed_has_the_rows_of_an_undisturbed_one(found: dict[str, Any]) -> None:
    assert found["killed"] == [True]
    assert [len(rows) for rows in found["calm"]] == [20, 53, 1]
    assert found["executor lost"] == found["calm"]


def test_a_batch_with_a_task_that_spark_ran_twice_at_once_has_the_rows_of_an_undisturbed_one(
    found: dict[str, Any],
) -> None:
    assert found["stood still"] is True
    assert found["copies"] >= 1
    assert found["speculated"] == found["calm"]
