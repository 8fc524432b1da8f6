"""`make demo`: run both samples with real Kafka, Spark and Airflow, and prove that the output is the expected
one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate.app import App
from tidegate.errors import SettingsInvalid, SetupFailed
from tidegate.inspect import BatchReport, batch_report
from tidegate_dev.demo.events import WAVES, stock_events
from tidegate_dev.demo.samples import AVAILABILITY, SAMPLES, Proof, Sample
from tidegate_dev.demo.topics import STOCK, VISITS, create_topics, send
from tidegate_dev.demo.visits import SPANS_MS, visit_events
from tidegate_dev.stack import Stack

_TRIGGER_ATTEMPTS = 5
_USER_SETTINGS = (
    *("TIDEGATE_LEDGER", "TIDEGATE_LAKE", "TIDEGATE_SQL"),
    *("TIDEGATE_DATA_DOCS", "TIDEGATE_TABLES"),
)


@dataclass(frozen=True)
class DemoRun:
    """One DAG run: the report of its batch, and the seconds from its trigger to its end."""

    report: BatchReport
    seconds: float


@dataclass(frozen=True)
class SampleResult:
    """The runs of a sample, in order, and the proof of its output."""

    sample: Sample
    runs: tuple[DemoRun, ...]
    proof: Proof


@dataclass(frozen=True)
class DemoResult:
    """The result of the demo: one result per sample, in the order of SAMPLES."""

    samples: tuple[SampleResult, ...]

    @property
    def equal(self) -> bool:
        """Whether consumers see exactly the expected output of every sample."""
        return all(result.proof.equal for result in self.samples)


def run_demo(home: Path, project: Path, say: Callable[[str], None]) -> DemoResult:
    """Start a local stack, run each DAG twice, and compare the output. Ends all that it started, also on
    failure.

    Args:
        home: The folder of the local stack (`TIDEGATE_HOME`); the demo replaces the folder `demo` below it.
        project: The checkout with `dags/`, `plugins/` and `include/`.
        say: Called with a line of progress.

    Raises SetupFailed if a part of the stack does not start, a DAG run fails, or another demo runs in `home`.
    """
    with _locked_demo(home):
        return _run_alone(home, project, say)


@contextmanager
def _locked_demo(home: Path) -> Iterator[None]:
    """Hold the lock of the only demo in `home`. Raises SetupFailed if another one runs there."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = (home / "demo.lock").open("w")
    except OSError as error:
        raise SetupFailed(
            f"{home} cannot be written: {error.strerror}", "Correct its rights, or set TIDEGATE_HOME."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupFailed(f"Another demo runs in {home}", "Wait for its end, or end it.") from None
        yield


def _run_alone(home: Path, project: Path, say: Callable[[str], None]) -> DemoResult:
    folder = _fresh_folder(home)
    for name in _USER_SETTINGS:
        os.environ.pop(name, None)  # the demo must never write to the user's own ledger, lake or database
    os.environ["TIDEGATE_PIPELINES"] = str(_unscheduled_pipelines(folder, project))
    os.environ["TIDEGATE_EXPECTATIONS"] = str(project / "include" / "expectations")
    say("starting Kafka, Spark and Airflow")
    with Stack(folder, project, keeps_spark=True) as stack:
        servers = stack.broker.bootstrap_servers
        say(f"Kafka is up at {servers}, Airflow at {stack.airflow.url}")
        create_topics(servers)
        for sample in SAMPLES:
            stack.airflow.wait_dag(sample.pipeline)
            stack.airflow.unpause(sample.pipeline)
        app = App.from_environment({**os.environ, **stack.airflow.env})
        waves = [_wave(stack, app, number, say) for number in range(len(WAVES))]
        say("reading the output topic and the table back")
        return DemoResult(
            tuple(_result(app, *sample_and_runs) for sample_and_runs in zip(SAMPLES, *waves, strict=True))
        )


def send_wave(servers: str, wave: int, say: Callable[[str], None]) -> None:
    """Send the events of a wave for a running stack. The visits end now, since their batches use the clock.

    Args:
        servers: Kafka's bootstrap servers.
        wave: 0 or 1.
        say: Called with the number of events in each topic.
    """
    begin_ms = time.time_ns() // 1_000_000 - sum(SPANS_MS[: wave + 1])
    for topic, events in ((STOCK, stock_events(wave)), (VISITS, visit_events(wave, begin_ms))):
        say(f"{send(servers, topic, events)} events went into the topic {topic}.")


def project_folder() -> Path:
    """Return the folder with `dags/` and the samples: this folder, if it is a checkout, else the wheel's.

    Raises SettingsInvalid if there is neither.
    """
    for folder in (Path.cwd(), Path(__file__).with_name("project")):
        if (folder / "dags" / "pipelines.py").is_file():
            return folder
    raise SettingsInvalid(
        f"{Path.cwd()} is not a checkout of tidegate", "Change to the folder that has dags/ in it."
    )


def _result(app: App, sample: Sample, *runs: DemoRun) -> SampleResult:
    return SampleResult(sample, runs, sample.prove(app, [run.report.plan for run in runs]))


def _wave(stack: Stack, app: App, number: int, say: Callable[[str], None]) -> list[DemoRun]:
    """Send the events of a wave to Kafka, then run all DAGs at the same time.

    Returns runs in SAMPLES' order.
    """
    servers = stack.broker.bootstrap_servers
    sent = [
        f"{send(servers, sample.topic, sample.events(number))} events in {sample.topic}" for sample in SAMPLES
    ]
    say(f"wave {number + 1}: {', '.join(sent)}; Airflow runs the DAGs")
    began = time.monotonic()
    run_ids = [_trigger(stack, sample, number) for sample in SAMPLES]
    pool = ThreadPoolExecutor(len(SAMPLES))
    try:
        return list(
            pool.map(lambda sample, run_id: _wait(stack, app, sample, run_id, began), SAMPLES, run_ids)
        )
    finally:
        # After Ctrl-C nobody waits for the runs: the stack ends, and the threads with it.
        pool.shutdown(wait=False)


def _trigger(stack: Stack, sample: Sample, number: int) -> str:
    """Trigger a DAG run and return its id. Airflow generates the id, and the ledger stores the run by it.

    Airflow's database is SQLite here, which refuses a write during another write, so the trigger is retried.
    """
    interval = sample.interval(number) if sample.interval else None
    for _ in range(_TRIGGER_ATTEMPTS - 1):
        try:
            return stack.airflow.trigger(sample.pipeline, data_interval=interval)
        except SetupFailed as error:
            if "Database error" not in str(error):
                raise
    return stack.airflow.trigger(sample.pipeline, data_interval=interval)


def _wait(stack: Stack, app: App, sample: Sample, run_id: str, began: float) -> DemoRun:
    """Wait for the end of a DAG run. Returns its batch, as the ledger has it.

    Raises SetupFailed if the run fails, or if it planned no batch.
    """
    end = stack.airflow.wait_run(sample.pipeline, run_id)
    seconds = time.monotonic() - began
    if end.state != "success":
        what = f"The run {run_id} of the DAG {sample.pipeline} ended as {end.state}"
        raise SetupFailed(f"{what}:\n{end.log_tail}", "See the log above.")
    run = app.ledger.run(sample.stream, run_id)
    report = batch_report(app.ledger, sample.stream, run.seq) if run is not None and run.seq else None
    if report is None:
        raise SetupFailed(
            f"The run {run_id} of {sample.pipeline} planned no batch", "See its log in Airflow."
        )
    return DemoRun(report, seconds)


def _unscheduled_pipelines(folder: Path, project: Path) -> Path:
    """Copy the samples without their schedules to a folder, so that only the demo's own runs read
    the topics.
    """
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    for sample in SAMPLES:
        file = f"{sample.pipeline}.yaml"
        text = (project / "include" / "pipelines" / file).read_text()
        (pipelines / file).write_text(re.sub(r"(?m)^schedule:.*$", "schedule: null", text))
    return pipelines


def _fresh_folder(home: Path) -> Path:
    """Make an empty folder for the demo.

    It links to the installed jars of the broker, to not download them again.
    """
    folder = home / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "jars").symlink_to(home / "jars", target_is_directory=True)
    return folder


def verdict(result: SampleResult) -> str:
    """Return one sentence: the size of the output and what it is equal to, or the first difference."""
    proof = result.proof
    if not proof.equal:
        return _difference(proof)
    if result.sample is AVAILABILITY:
        records = sum(map(len, proof.actual.values()))
        return (
            f"a read_committed consumer sees {records} records of {len(proof.actual)} keys, each key's in "
            "order: exactly the availability changes that a separate computation expects from the input."
        )
    return (
        f"{_batches(proof)}: exactly the batches that a separate computation expects from the input and the "
        "runs' clocks."
    )


def _batches(proof: Proof) -> str:
    all_batches = [batch for batches in proof.actual.values() for batch in batches]
    rows = [len(batch["events"]) for batch in all_batches if batch["batch"] is not None]
    waiting = sum(len(batch["events"]) for batch in all_batches) - sum(rows)
    return (
        f"the SQL table has {sum(rows)} events of {len(proof.actual)} customers in {len(rows)} rows, "
        f"at most {max(rows, default=0)} in a row, and {waiting} events still wait; each event appears once, "
        "in order"
    )


def _difference(proof: Proof) -> str:
    keys = proof.expected.keys() | proof.actual.keys()
    wrong = sorted(key for key in keys if proof.expected.get(key) != proof.actual.get(key))
    problems = list(proof.faults)
    if wrong:
        key = wrong[0]
        problems.append(
            f"{len(wrong)} keys differ, the first is {key}: "
            f"expected {proof.expected.get(key)}, got {proof.actual.get(key)}"
        )
    return "; ".join(problems)
