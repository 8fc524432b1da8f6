"""Seconds in which Airflow's DAG processor reads a folder of so many pipeline files, beside its limit.

`python -m benchmarks.parsing --help`
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.figures import show_json, show_table, spread, spread_text
from benchmarks.measure import CommandFailed
from benchmarks.place import PROJECT

# What the processor does with a file: it is imported anew, in a process that has imported Airflow.
_PARSE = """
import json, time
from airflow.dag_processing.dagbag import DagBag
from airflow.configuration import conf
began, cpu = time.perf_counter(), time.process_time()
bag = DagBag({file!r})
assert not bag.import_errors, bag.import_errors
print(json.dumps({{
    "seconds": time.perf_counter() - began,
    "cpu_seconds": time.process_time() - cpu,
    "dags": len(bag.dags),
    "limit": conf.getfloat("core", "dagbag_import_timeout"),
}}))
"""


def measure(files: int, repeat: int) -> list[dict[str, float]]:
    """Each repeat in a process of its own, on the same folder."""
    with TemporaryDirectory(prefix="tidegate-bench-") as folder:
        home = Path(folder)
        _write_pipelines(home / "pipelines", files)
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(home / "airflow"),
            "TIDEGATE_HOME": str(home),
            "TIDEGATE_PIPELINES": str(home / "pipelines"),
            "PYTHONPATH": str(PROJECT / "plugins"),
        }
        runs = [_parsed(environment) for _ in range(repeat)]
    assert all(run["dags"] == files for run in runs), runs
    return runs


def _write_pipelines(folder: Path, files: int) -> None:
    """Copies of a sample, each a pipeline of its own."""
    folder.mkdir()
    text = (PROJECT / "include" / "pipelines" / "availability.yaml").read_text()
    for number in range(files):
        name = f"availability_{number}"
        (folder / f"{name}.yaml").write_text(text.replace("pipeline: availability", f"pipeline: {name}"))


def _parsed(environment: dict[str, str]) -> dict[str, float]:
    program = _PARSE.format(file=str(PROJECT / "dags" / "pipelines.py"))
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CommandFailed(done.stderr[-4000:])
    seconds: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds


@click.command()
@click.option("--files", default=500, show_default=True, help="Pipeline files.")
@click.option("--repeat", default=3, show_default=True)
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(files: int, repeat: int, json_wanted: bool) -> None:
    """Measure how long Airflow takes to read pipeline files, which it does again and again."""
    runs = measure(files, repeat)
    if json_wanted:
        show_json({"files": files, "runs": runs, "seconds": spread([run["seconds"] for run in runs])})
        return
    rows: list[dict[str, Any]] = [
        {"seconds": name, "min / median / max": spread_text([run[key] for run in runs], 2)}
        for name, key in (("wall", "seconds"), ("processor", "cpu_seconds"), ("Airflow's limit", "limit"))
    ]
    show_table(rows, f"{files} pipeline files as DAGs")


if __name__ == "__main__":
    main()
