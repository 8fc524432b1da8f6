"""`make demo`: the whole line on real parts, then the proof that what came out is what had to."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tidegate.demo.events import WAVES, stock_events
from tidegate.demo.expected import History, expected_availability
from tidegate.demo.topics import create_topics, read_published, send
from tidegate.errors import SetupFailed
from tidegate.ledger import Ledger, Stream
from tidegate.local.stack import Stack
from tidegate.steps import BatchReport, batch_report

PIPELINE = "availability"
_RUN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class DemoRun:
    """One DAG run: its batch, and the seconds from its trigger to its end."""

    report: BatchReport
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """What the demo shows at its end. `published` and `expected` are key -> values in order."""

    runs: tuple[DemoRun, ...]
    published: History
    expected: History

    @property
    def equal(self) -> bool:
        """Whether a consumer sees exactly the expected records, each key's in order."""
        return self.published == self.expected


def run_demo(home: Path, project: Path, say: Callable[[str], None]) -> DemoResult:
    """Broker, topics, events, Airflow, two runs of the DAG; ends all that it started, also on failure."""
    folder = _fresh_folder(home)
    for name in ("TIDEGATE_LEDGER", "TIDEGATE_LAKE", "TIDEGATE_JARS"):
        os.environ.pop(name, None)  # the demo never touches what the user has
    os.environ["TIDEGATE_PIPELINES"] = str(_unscheduled_pipeline(folder, project))
    os.environ["TIDEGATE_EXPECTATIONS"] = str(project / "include" / "expectations")
    say("starting Kafka and Airflow")
    with Stack(folder, project) as stack:
        servers = stack.broker.bootstrap_servers
        say(f"Kafka is up at {servers}, Airflow at {stack.airflow.url}")
        create_topics(servers)
        stack.airflow.wait_dag(PIPELINE)
        stack.airflow.unpause(PIPELINE)
        ledger = Ledger.open(stack.airflow.env["TIDEGATE_LEDGER"])
        runs = tuple(_wave(stack, ledger, number, say) for number in range(len(WAVES)))
        say("reading the output topic back")
        published = read_published(servers)
    expected = expected_availability(chain.from_iterable(map(stock_events, range(len(WAVES)))))
    return DemoResult(runs, published, expected)


def _wave(stack: Stack, ledger: Ledger, number: int, say: Callable[[str], None]) -> DemoRun:
    sent = send(stack.broker.bootstrap_servers, stock_events(number))
    run_id = f"demo_wave_{number + 1}"
    say(f"wave {number + 1}: {sent} events are in Kafka; Airflow runs the DAG {PIPELINE}")
    began = time.monotonic()
    stack.airflow.trigger(PIPELINE, run_id)
    end = stack.airflow.wait_run(PIPELINE, run_id, _RUN_TIMEOUT_S)
    if end.state != "success":
        raise SetupFailed(f"The DAG run {run_id} ended as {end.state}:\n{end.log_tail}", "See the log above.")
    stream = Stream(PIPELINE, 1)
    run = ledger.run(stream, run_id)
    report = batch_report(ledger, stream, run.seq) if run is not None and run.seq is not None else None
    if report is None:
        raise SetupFailed(f"The DAG run {run_id} planned no batch", "See its log in Airflow.")
    return DemoRun(report, time.monotonic() - began)


def _unscheduled_pipeline(folder: Path, project: Path) -> Path:
    """A pipelines folder with the sample and without its schedule: only the demo's own two runs read."""
    text = (project / "include" / "pipelines" / f"{PIPELINE}.yaml").read_text()
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    (pipelines / f"{PIPELINE}.yaml").write_text(re.sub(r"(?m)^schedule:.*$", "schedule: null", text))
    return pipelines


def _fresh_folder(home: Path) -> Path:
    """A folder of the demo's own, empty at each start, beside the installed jars."""
    folder = home / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "jars").symlink_to(home / "jars", target_is_directory=True)
    return folder
