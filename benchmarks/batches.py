"""Batches that Airflow runs as one task each: when they were published, and what the time went to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlencode

from sqlalchemy import create_engine, select

from benchmarks.place import STEPS
from tidegate.inspect import batch_report
from tidegate.ledger import Ledger, Stream, schema
from tidegate_dev.airflow_client import AirflowClient

MADE, STARTED, SLOT, PROCESS, REST = (
    "until the scheduler makes the run",
    "until it starts the run",
    "the task waits for a slot",
    "the task's process starts",
    "the task, but its steps",
)
PHASES = (MADE, STARTED, SLOT, PROCESS, *(f"step {step}" for step in STEPS), REST)
"""What the time from an interval's end to its publication is made of, in order, but for the last."""

_PAGE = 100


@dataclass(frozen=True)
class Batch:
    """A published batch. `clock`, the end of its interval, and `published` are epoch seconds."""

    stream: Stream
    seq: int
    run_id: str
    clock: float
    published: float
    read: int
    emitted: int
    steps: Mapping[str, float]

    @property
    def lag(self) -> float:
        """Seconds from the interval's end until it was published."""
        return self.published - self.clock


@dataclass(frozen=True)
class TaskRun:
    """The moments that a run and its only task reached, in epoch seconds; the task's last try counts."""

    made: float
    started: float
    queued: float
    began: float
    tries: int


def published_batches(ledger_url: str, since: float = 0.0, until: float = 1e12) -> list[Batch]:
    """The batches that were published in a span of time, of each stream in order."""
    table = schema.publications
    in_span = table.c.published_at.between(since, until)
    engine = create_engine(ledger_url)
    try:
        with engine.connect() as connection:
            rows = connection.execute(select(table).where(in_span).order_by(*table.primary_key)).all()
    finally:
        engine.dispose()
    ledger = Ledger.open(ledger_url)
    return [_batch(ledger, Stream(row.pipeline, row.generation), row.seq, row.published_at) for row in rows]


def _batch(ledger: Ledger, stream: Stream, seq: int, published: float) -> Batch:
    report = batch_report(ledger, stream, seq)
    assert report is not None
    counts, clock = report.counts, report.plan.clock_ms / 1000
    steps = {step: report.seconds.get(step, 0.0) for step in STEPS}  # the last is noted after the publication
    return Batch(
        *(stream, seq, report.plan.run_id, clock, published),
        *(int(counts.get("read", 0)), int(counts.get("emitted", 0)), steps),
    )


def task_runs(airflow: AirflowClient, since: float) -> dict[tuple[str, str], TaskRun]:
    """(DAG, run) -> how it went, of the runs since an instant whose task has begun."""
    query = {"run_after_gte": datetime.fromtimestamp(since, timezone.utc).isoformat()}
    rows = _rows(airflow, "/dags/~/dagRuns", "dag_runs", query)
    runs = {(row["dag_id"], row["dag_run_id"]): row for row in rows}
    by_run = {}
    for task in _rows(airflow, "/dags/~/dagRuns/~/taskInstances", "task_instances", query):
        run = runs.get((task["dag_id"], task["dag_run_id"]))
        if run is not None and task["start_date"] is not None and task["queued_when"] is not None:
            by_run[task["dag_id"], task["dag_run_id"]] = TaskRun(
                made=instant(run["queued_at"]),
                started=instant(run["start_date"]),
                queued=instant(task["queued_when"]),
                began=instant(task["start_date"]),
                tries=task["try_number"],
            )
    return by_run


def _rows(
    airflow: AirflowClient, path: str, name: str, query: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    """Yield all rows of a list that Airflow returns page by page."""
    offset, total = 0, 1
    while offset < total:
        page = urlencode({**query, "limit": _PAGE, "offset": offset, "order_by": "id"})
        answer = airflow.api("GET", f"{path}?{page}")
        yield from answer[name]
        offset, total = offset + _PAGE, answer["total_entries"]


def phases(batch: Batch, run: TaskRun) -> dict[str, float]:
    """Return the parts of a batch's lag, in seconds."""
    return {
        MADE: run.made - batch.clock,
        STARTED: run.started - run.made,
        SLOT: run.queued - run.started,
        PROCESS: run.began - run.queued,
        **{f"step {step}": seconds for step, seconds in batch.steps.items()},
        REST: batch.published - run.began - sum(batch.steps.values()),
    }


def instant(text: str) -> float:
    """Airflow's time as epoch seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def last_clocks(batches: Sequence[Batch]) -> dict[str, float]:
    """Pipeline -> the end of the last interval that is published."""
    return {batch.stream.pipeline: batch.clock for batch in sorted(batches, key=lambda batch: batch.clock)}
