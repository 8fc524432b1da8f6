"""The process from which Airflow forks tasks: what it has imported, and what tasks then need not do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

_PROGRAM = """
import gc, json, os, sys
import tidegate_airflow.preload
from tidegate.model.compiled import parts
from tidegate.model.pipeline import Written
before = set(sys.modules)
from tidegate.quality.expectations import registry
from tidegate.quality.pages import _view
from tidegate_airflow import pipeline_dags
dags = pipeline_dags()
loaded = {name for name in set(sys.modules) - before if name.startswith("tidegate")}
in_child = os.fork()
if in_child == 0:
    os._exit(json in gc.get_objects())
print(json.dumps({
    "dags": len(dags),
    "steps": [name in before for name in ("tidegate.batch.compute", "great_expectations", "grpc")],
    "expectations": len(dict.items(registry._registered_expectations)) > 50,
    "templates": len(_view().env.cache) > 10,
    "imported": sorted(loaded - {"tidegate_airflow.spark_jobs"}),  # an empty package, where the jobs are
    "complete": Written.__pydantic_complete__,
    "parts": parts.cache_info().currsize,
    "frozen": gc.get_freeze_count(),
    "child": os.waitstatus_to_exitcode(os.waitpid(in_child, 0)[1]),
}))
"""


@pytest.mark.airflow
def test_preloaded_process_leaves_tasks_nothing_to_import(tmp_path: Path) -> None:
    environment = {**os.environ, "TIDEGATE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.pop("dags") > 0
    assert report.pop("frozen") > 100_000
    assert report == {
        "steps": [True] * 3,
        "expectations": True,
        "templates": True,
        "imported": [],
        "complete": True,
        "parts": 1,
        "child": 0,
    }


_WITHOUT_QUALITY = """
import sys

sys.modules["great_expectations"] = None  # as if it were not installed
import tidegate_airflow.preload
from tidegate.model.compiled import parts
assert "tidegate.spark.batch" in sys.modules and parts.cache_info().currsize
"""


@pytest.mark.airflow
def test_preload_works_without_the_quality_extra(tmp_path: Path) -> None:
    assert "the preload failed" not in _output_of(_WITHOUT_QUALITY, tmp_path)


_BROKEN = """
import sys

class Breaking:
    def find_spec(self, name, *_):
        if name == "tidegate.inspect":
            raise RuntimeError("half of an upgrade")

sys.meta_path.insert(0, Breaking())
import tidegate_airflow.preload
"""


@pytest.mark.airflow
def test_failed_preload_leaves_fork_server_alive(tmp_path: Path) -> None:
    output = _output_of(_BROKEN, tmp_path)
    assert "the preload failed" in output
    assert "half of an upgrade" in output


def _output_of(program: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env={**os.environ, "TIDEGATE_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
