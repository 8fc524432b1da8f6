"""One run of the DAG on the real local stack: seconds from its trigger to the published batch.

`python -m benchmarks.airflow_run --help`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from benchmarks.events import Load, send
from benchmarks.figures import show_json, show_table, spread, spread_text, teller
from benchmarks.place import (
    PIPELINE,
    PROJECT,
    SINK,
    SOURCE,
    STEPS,
    create_topics,
    ledger_url,
    temporary_home,
    write_pipeline,
)
from benchmarks.programs import ResultWrong
from tidegate.inspect import batch_report
from tidegate.ledger import Ledger, Stream
from tidegate.local.stack import Stack

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class DagRun:
    """Seconds of one run. `steps` is what the steps themselves took, `tasks` what Airflow says of its tasks.

    A task is its step, and what it takes to get there: a new process, imports, for `compute` spark-submit.
    """

    records: int
    emitted: int
    seconds: float
    steps: dict[str, float]
    tasks: dict[str, float]

    @property
    def starting(self) -> float:
        """In tasks, but not in steps."""
        return sum(self.tasks.values()) - sum(self.steps.values())

    @property
    def scheduling(self) -> float:
        """In no task: Airflow's own, between the trigger, the tasks and the run's end."""
        return self.seconds - sum(self.tasks.values())


def measure_runs(load: Load, repeat: int, say: Callable[[str], None]) -> list[DagRun]:
    """Start the stack, then send the load, with new events each time, and run the DAG on it."""
    with temporary_home() as home:
        write_pipeline(home)
        say("starting Kafka and Airflow")
        with Stack(home, PROJECT) as stack:
            create_topics(stack.broker.bootstrap_servers, load.partitions, SOURCE, SINK)
            stack.airflow.wait_dag(PIPELINE)
            stack.airflow.unpause(PIPELINE)
            runs = []
            for number in range(repeat):
                say(f"run {number + 1} of {repeat}")
                each = replace(load, first=number * load.events)
                send(stack.broker.bootstrap_servers, SOURCE, each)
                runs.append(_run(stack, home, f"bench_{number + 1}", each))
            return runs


def _run(stack: Stack, home: Path, run_id: str, load: Load) -> DagRun:
    began = time.monotonic()
    stack.airflow.trigger(PIPELINE, run_id)
    end = stack.airflow.wait_run(PIPELINE, run_id, _TIMEOUT_S)
    seconds = time.monotonic() - began
    if end.state != "success":
        raise ResultWrong(f"The DAG run {run_id} ended as {end.state}:\n{end.log_tail}")
    ledger, stream = Ledger.open(ledger_url(home)), Stream(PIPELINE, 1)
    report = batch_report(ledger, stream, ledger.head(stream).seq)
    if report is None or report.counts["read"] != load.events:
        raise ResultWrong(f"The DAG run {run_id} did not read {load.events} records")
    if list(report.published.values()) != [report.counts["emitted"]]:
        raise ResultWrong(f"The DAG run {run_id} published {report.published}")
    emitted = int(report.counts["emitted"])
    return DagRun(load.events, emitted, seconds, report.seconds, _tasks(stack, run_id))


def _tasks(stack: Stack, run_id: str) -> dict[str, float]:
    """Task -> seconds from its start to its end, as Airflow noted them."""
    path = f"/dags/{PIPELINE}/dagRuns/{run_id}/taskInstances"
    rows = stack.airflow.api("GET", path)["task_instances"]
    return {row["task_id"]: _instant(row["end_date"]) - _instant(row["start_date"]) for row in rows}


def _instant(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _shown(runs: list[DagRun]) -> list[dict[str, Any]]:
    numbers = {
        "trigger to published": [run.seconds for run in runs],
        **{f"step {name}": [run.steps[name] for run in runs] for name in STEPS},
        "starting the tasks' processes": [run.starting for run in runs],
        "Airflow, between the tasks": [run.scheduling for run in runs],
    }
    return [
        {
            "seconds": name,
            "min / median / max": spread_text(each),
            "runs": "  ".join(f"{s:.1f}" for s in each),
        }
        for name, each in numbers.items()
    ]


def _as_json(runs: list[DagRun]) -> dict[str, Any]:
    return {
        "runs": [asdict(run) | {"starting": run.starting, "scheduling": run.scheduling} for run in runs],
        "seconds": spread([run.seconds for run in runs]),
    }


@click.command()
@click.option("--events", default=10_000, show_default=True, help="New events before each run.")
@click.option("--keys", default=5_000, show_default=True, help="Products that they are about.")
@click.option("--repeat", default=3, show_default=True, help="Runs of the DAG.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(events: int, keys: int, repeat: int, json_wanted: bool) -> None:
    """Measure runs of the DAG on a local Kafka and Airflow, started for it and ended after it."""
    runs = measure_runs(Load(events, keys), repeat, teller())
    if json_wanted:
        show_json(_as_json(runs))
    else:
        show_table(_shown(runs), f"A DAG run on {events:,} new events")


if __name__ == "__main__":
    main()
