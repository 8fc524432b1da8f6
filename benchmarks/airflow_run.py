"""Runs of the DAG on the real local stack, in turns with runs of a DAG of as many tasks that do nothing.
Seconds are from the trigger to the run's end, which is when the batch is published.

`python -m benchmarks.airflow_run --help`
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.batches import instant
from benchmarks.events import Load, send
from benchmarks.figures import machine, show_json, show_table, spread, spread_text, teller
from benchmarks.measure import Usage
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
    write_project,
)
from benchmarks.programs import ResultWrong, Run
from benchmarks.results import save_option, save_rows
from benchmarks.turns import Row, Say, Turn, row_object
from tidegate.inspect import batch_report
from tidegate.ledger import Ledger, Stream
from tidegate_dev.stack import Stack

_TIMEOUT_S = 600.0
_AS_IT_COMES = {
    "AIRFLOW__SCHEDULER__MP_START_METHOD": "fork",
    "AIRFLOW__SCHEDULER__MP_FORKSERVER_PRELOAD": "",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
}
"""How Airflow starts tasks where nobody has set it: those that do nothing start sooner in `make up`, too."""


@dataclass(frozen=True)
class Way:
    """A way to run batches, and the largest accepted ratios of its median to the idle DAG's: on the same
    stack, and in an Airflow with its default settings.
    """

    title: str
    keeps_spark: bool
    tasks: int
    bound: float
    plain: float | None = None


ROWS = {
    "warm": Way("five tasks, a kept Spark Connect server", keeps_spark=True, tasks=5, bound=1.7, plain=0.8),
    "one": Way("tasks: one, a kept Spark Connect server", keeps_spark=True, tasks=1, bound=2.5),
    "cold": Way(
        "five tasks, a Spark that `compute` starts", keeps_spark=False, tasks=5, bound=2.5, plain=1.5
    ),
}
_EVENTS, _KEYS = 10_000, 5_000


@dataclass(frozen=True)
class DagRun:
    """Seconds of one run. `steps` is what the steps themselves took, `tasks` what Airflow says of its tasks.

    A task is its step, and what it takes to get there: a new process and its imports.
    """

    records: int
    emitted: int
    seconds: float
    steps: dict[str, float]
    tasks: dict[str, float]

    @property
    def starting(self) -> float:
        """Return the seconds within the tasks and outside of the steps."""
        return sum(self.tasks.values()) - sum(self.steps.values())

    @property
    def scheduling(self) -> float:
        """Return the seconds outside of the tasks, which Airflow takes between the trigger, the tasks and the
        run's end."""
        return self.seconds - sum(self.tasks.values())


@dataclass(frozen=True)
class Measured:
    """The runs of a way, and the seconds of the idle DAG's, turn by turn: on the same stack, and `plain`, in
    an Airflow that starts tasks as it does by default.
    """

    way: Way
    runs: list[DagRun]
    idle: list[float]
    plain: list[float]

    @property
    def ratio(self) -> float:
        """Return the ratio of the medians to the idle DAG on the same stack."""
        return self._to(self.idle)

    @property
    def ratio_to_plain(self) -> float:
        """Return the ratio of the medians to the idle DAG in an Airflow with its default settings."""
        return self._to(self.plain)

    def _to(self, idle: list[float]) -> float:
        return statistics.median(run.seconds for run in self.runs) / statistics.median(idle)


def measure(way: Way, load: Load, turns: int, say: Say) -> Measured:
    """Start the stack, then in each turn run the idle DAG, send the load, with new events each time, and run
    the pipeline's DAG on it. A turn before the first is not counted: what is made once is made then.
    """
    plain = _measure_plain(way, turns, say)
    with temporary_home() as home:
        _write_pipeline(home, way.tasks)
        say(f"{way.title}: starting the stack")
        with Stack(
            home, write_project(home, PROJECT / "benchmarks" / "idle_dags.py"), keeps_spark=way.keeps_spark
        ) as stack:
            create_topics(stack.broker.bootstrap_servers, load.partitions, SOURCE, SINK)
            idle = f"idle_{way.tasks}"
            for dag_id in (PIPELINE, idle):
                stack.airflow.wait_dag(dag_id)
                stack.airflow.unpause(dag_id)
            runs, nothing = [], []
            for turn in range(turns + 1):
                say(f"{way.title}: turn {turn} of {turns}")
                nothing.append(_run(stack, idle, turn))
                portion = replace(load, first=turn * load.events)
                send(stack.broker.bootstrap_servers, SOURCE, portion)
                runs.append(_run_batch(stack, home, turn, portion))
            return Measured(way, runs[1:], nothing[1:], plain)


def _measure_plain(way: Way, turns: int, say: Say) -> list[float]:
    """The idle DAG's runs in an Airflow as it comes."""
    with temporary_home() as home:
        say(f"{way.title}: starting an Airflow as it comes")
        stack = Stack(home, write_project(home, PROJECT / "benchmarks" / "idle_dags.py"))
        stack.airflow.env.update(_AS_IT_COMES)
        with stack:
            idle = f"idle_{way.tasks}"
            stack.airflow.wait_dag(idle)
            stack.airflow.unpause(idle)
            return [_run(stack, idle, turn) for turn in range(turns + 1)][1:]


def _write_pipeline(home: Path, tasks: int) -> None:
    write_pipeline(home)
    if tasks == 1:
        with (home / "pipelines" / f"{PIPELINE}.yaml").open("a") as file:
            file.write("tasks: one\n")


def _run_batch(stack: Stack, home: Path, turn: int, load: Load) -> DagRun:
    seconds = _run(stack, PIPELINE, turn)
    ledger, stream = Ledger.open(ledger_url(home)), Stream(PIPELINE, 1)
    report = batch_report(ledger, stream, ledger.head(stream).seq)
    if report is None or report.counts["read"] != load.events:
        raise ResultWrong(f"Turn {turn} did not read {load.events} records")
    if list(report.published.values()) != [report.counts["emitted"]]:
        raise ResultWrong(f"Turn {turn} published {report.published}")
    emitted = int(report.counts["emitted"])
    return DagRun(load.events, emitted, seconds, report.seconds, _tasks(stack, _run_id(turn)))


def _run(stack: Stack, dag_id: str, turn: int) -> float:
    """Seconds of a run from its trigger to its end."""
    began = time.monotonic()
    stack.airflow.trigger(dag_id, _run_id(turn))
    end = stack.airflow.wait_run(dag_id, _run_id(turn), _TIMEOUT_S)
    seconds = time.monotonic() - began
    if end.state != "success":
        raise ResultWrong(f"Turn {turn} of {dag_id} ended as {end.state}:\n{end.log_tail}")
    return seconds


def _run_id(turn: int) -> str:
    return f"turn_{turn}"


def _tasks(stack: Stack, run_id: str) -> dict[str, float]:
    """Task -> seconds from its start to its end, as Airflow noted them; without those that were skipped."""
    path = f"/dags/{PIPELINE}/dagRuns/{run_id}/taskInstances"
    rows = stack.airflow.api("GET", path)["task_instances"]
    done = [row for row in rows if row["state"] != "skipped"]
    return {row["task_id"]: instant(row["end_date"]) - instant(row["start_date"]) for row in done}


def _shown(measured: Measured) -> list[dict[str, Any]]:
    runs = measured.runs
    numbers = {
        "trigger to published": [run.seconds for run in runs],
        **{f"step {name}": [run.steps[name] for run in runs] for name in STEPS},
        "starting the tasks' processes": [run.starting for run in runs],
        "Airflow, between the tasks": [run.scheduling for run in runs],
        f"a DAG of {measured.way.tasks} that do nothing": measured.idle,
        "the same in an Airflow as it comes": measured.plain,
    }
    return [
        {
            "seconds": name,
            "min / median / max": spread_text(seconds),
            "turns": "  ".join(f"{s:.1f}" for s in seconds),
        }
        for name, seconds in numbers.items()
    ]


def _as_json(measured: Measured) -> dict[str, Any]:
    return {
        "runs": [
            asdict(run) | {"starting": run.starting, "scheduling": run.scheduling} for run in measured.runs
        ],
        "seconds": spread([run.seconds for run in measured.runs]),
        "idle": spread(measured.idle),
        "plain": spread(measured.plain),
        "ratio": measured.ratio,
        "ratio_to_plain": measured.ratio_to_plain,
        "bound": measured.way.bound,
    }


def _saved(name: str, measured: Measured, load: Load) -> dict[str, Any]:
    """Return the runs beside the idle DAG in an Airflow with its default settings, as a row of results."""
    ours, idle = "a DAG run", f"{measured.way.tasks} idle tasks, Airflow's default settings"
    turns = [
        turn
        for number, (run, seconds) in enumerate(zip(measured.runs, measured.plain, strict=True), start=1)
        for turn in (
            Turn(ours, number, Run(Usage(run.seconds, 0.0, 0, 0), run.emitted, run.steps)),
            Turn(idle, number, Run(Usage(seconds, 0.0, 0, 0))),
        )
    ]
    title = f"A DAG run on {load.events:,} new events, {measured.way.title}"
    bound = measured.way.plain if load == Load(_EVENTS, _KEYS) else None
    row = row_object(Row(title, (ours, idle), tuple(turns)))
    return {"name": f"airflow-{name}", "bound": bound, "machine": machine(), **row}


@click.command()
@click.argument("names", metavar="[ROW]...", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--events", default=_EVENTS, show_default=True, help="New events before each run.")
@click.option("--keys", default=_KEYS, show_default=True, help="Products that they are about.")
@click.option("--turns", default=3, show_default=True, help="Runs of each DAG.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
@save_option
def main(
    names: tuple[str, ...], events: int, keys: int, turns: int, json_wanted: bool, save: Path | None
) -> None:
    """Measure DAG runs, all rows or those named, on a local Kafka, Spark and Airflow, which end after it."""
    say = teller()
    load, measured = Load(events, keys), {}
    for name in names or ROWS:
        measured[name] = measure(ROWS[name], load, turns, say)
        if save is not None:
            save_rows(save, [_saved(name, measured[name], load)])
    if json_wanted:
        show_json({name: _as_json(batches) for name, batches in measured.items()})
        return
    for batches in measured.values():
        ratio = f"{batches.ratio:.2f} of the idle DAG's, at most {batches.way.bound}; "
        ratio += f"in an Airflow as it comes {batches.ratio_to_plain:.2f}"
        show_table(_shown(batches), f"A DAG run on {events:,} new events, {batches.way.title}: {ratio}")


if __name__ == "__main__":
    main()
