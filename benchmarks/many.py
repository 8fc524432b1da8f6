"""Many pipelines on a schedule of one minute, on the real local stack: how many of them keep up, how long
after an interval's end its batch is published, and what the time, the processors and the memory go to.

`python -m benchmarks.many --help`
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.batches import PHASES, Batch, TaskRun, last_clocks, phases, published_batches, task_runs
from benchmarks.feed import PARTITIONS, PORTIONS, Feed, Sent
from benchmarks.figures import machine, mib, show_json, show_table, spread, spread_text, teller
from benchmarks.groups import OTHER_PROCESSES, Groups, GroupUsage
from benchmarks.outputs import messages
from benchmarks.place import (
    PIPELINE,
    create_topics,
    ledger_url,
    temporary_home,
    write_pipeline,
    write_project,
)
from benchmarks.programs import ResultWrong, require_equal
from benchmarks.turns import Say
from tidegate.errors import SetupFailed
from tidegate.ledger import Ledger, Stream
from tidegate_dev.stack import Stack

KEEPS_UP_S = 120.0
"""So far back the last interval that is published may have ended."""

_MINUTE_S = 60.0
_LOOK_S = 0.5
_MAINTENANCE_S = 30.0  # as often as the supervisor of `make up` looks after the Spark Connect server
_WARM_UP_S, _WARM_UP_EACH_S = 120.0, 20.0
_DRAIN_S = 300.0


@dataclass(frozen=True)
class Measured:
    """A number of pipelines, watched from `begin` to `end` (epoch seconds).

    `clocks` maps a pipeline to the end of its last interval that was published at `end`. `runs` are the
    batches whose runs Airflow still has.
    """

    pipelines: int
    begin: float
    end: float
    batches: list[Batch]
    clocks: dict[str, float]
    runs: list[tuple[Batch, TaskRun]]
    usages: list[GroupUsage]
    server_restarts: int

    @property
    def keeping_up(self) -> int:
        """Count the pipelines that keep up."""
        return sum(self.end - clock <= KEEPS_UP_S for clock in self.clocks.values())

    @property
    def batches_of_each(self) -> list[int]:
        """Return the number of batches that each pipeline made."""
        numbers = Counter(batch.stream.pipeline for batch in self.batches)
        return [numbers[name] for name in self.clocks]

    @property
    def lags(self) -> list[float]:
        """Return the seconds from the end of each batch's interval until it was published."""
        return [batch.lag for batch in self.batches]

    @property
    def phases(self) -> dict[str, list[float]]:
        """Return the parts of the lag, in seconds, for each batch."""
        parts = [phases(batch, run) for batch, run in self.runs]
        return {name: [part[name] for part in parts] for name in PHASES}

    @property
    def retries(self) -> int:
        """Tries of tasks beyond the first."""
        return sum(run.tries - 1 for _, run in self.runs)

    @property
    def busy(self) -> float:
        """The share of all processors that was not idle."""
        seconds = sum(usage.cpu_seconds for usage in self.usages)
        return seconds / (self.end - self.begin) / (os.cpu_count() or 1)


def measure(
    steps: Sequence[int], minutes: int, per_minute: int, settings: Mapping[str, str], say: Say
) -> list[Measured]:
    """Start the stack, then for each number of `steps`, in rising order, let so many pipelines run, and watch
    them once each has had a batch. In the end all that was published must be right. Raises ResultWrong.
    """
    names = [f"many_{number:03}" for number in range(max(steps))]
    with temporary_home() as home:
        _write_pipelines(home, names)
        say("starting the stack")
        stack = Stack(home, write_project(home), keeps_spark=True)
        stack.airflow.env.update(settings)
        with stack, Feed(stack.broker.bootstrap_servers, per_minute) as feed:
            say(f"making the topics and DAGs of {len(names)} pipelines")
            topics = [topic for name in names for topic in (_source(name), _sink(name))]
            create_topics(stack.broker.bootstrap_servers, PARTITIONS, *topics)
            for name in names:
                stack.airflow.wait_dag(name)
            watch = _Watch(stack, home, feed, say)
            measured = []
            for number in sorted(steps):
                watch.warm_up(names[:number])
                measured.append(watch.measure(names[:number], minutes))
            watch.drain(names)
            say("checking what was published")
            _check(stack.broker.bootstrap_servers, home, [(name, feed.sent(_source(name))) for name in names])
            return measured


def _write_pipelines(home: Path, names: Sequence[str]) -> None:
    """Copies of the sample between topics of their own, each a batch of one task, every minute."""
    sample = home / "pipelines" / f"{PIPELINE}.yaml"
    for name in names:
        write_pipeline(home, source=_source(name), sink=_sink(name))
        text = sample.read_text().replace(f"pipeline: {PIPELINE}\n", f"pipeline: {name}\ntasks: one\n")
        text = text.replace("schedule: null\n", 'schedule: "* * * * *"\n')
        (home / "pipelines" / f"{name}.yaml").write_text(text)
    sample.unlink()


def _source(name: str) -> str:
    return f"{name}_in"


def _sink(name: str) -> str:
    return f"{name}_out"


class _Watch:
    """Lets pipelines of a running stack run, and looks what becomes of them."""

    def __init__(self, stack: Stack, home: Path, feed: Feed, say: Say) -> None:
        self._stack = stack
        self._url = ledger_url(home)
        self._feed = feed
        self._say = say
        self._active: set[str] = set()
        self._maintained = time.monotonic()
        self._restarts = 0

    def warm_up(self, names: Sequence[str]) -> None:
        """Let these pipelines run, until each has published a batch: what is made once is made then."""
        new = [name for name in names if name not in self._active]
        self._say(f"{len(names)} pipelines: {len(new)} more have their first batch")
        self._feed.add(map(_source, new))
        deadline = time.monotonic() + _WARM_UP_S + _WARM_UP_EACH_S * len(new)
        for name in new:
            self._patiently(partial(self._stack.airflow.unpause, name), deadline)
        self._active |= set(new)
        ledger = Ledger.open(self._url)
        waiting = new
        while waiting := [name for name in waiting if not ledger.publications(Stream(name, 1), 1)]:
            if time.monotonic() > deadline:
                raise ResultWrong(f"{len(waiting)} pipelines have no batch yet, such as {waiting[0]}")
            self._pass(1.0)

    def measure(self, names: Sequence[str], minutes: int) -> Measured:
        """Watch these pipelines for whole minutes, after one that is not looked at."""
        begin = (time.time() // _MINUTE_S + 2) * _MINUTE_S
        end = begin + minutes * _MINUTE_S
        self._pass(begin - time.time())
        self._say(f"{len(names)} pipelines: watching them for {minutes} minutes")
        restarts = self._restarts
        with Groups() as groups:
            for minute in range(1, minutes + 1):
                self._pass(begin + minute * _MINUTE_S - time.time())
                self._say(f"{len(names)} pipelines: minute {minute} of {minutes}")
        batches = published_batches(self._url, until=end)
        runs = task_runs(self._stack.airflow, begin - minutes * _MINUTE_S)
        watched = [batch for batch in batches if batch.published >= begin]
        done = Measured(
            pipelines=len(names),
            begin=begin,
            end=end,
            batches=watched,
            clocks=last_clocks(batches),
            runs=[
                (batch, run) for batch in watched if (run := runs.get((batch.stream.pipeline, batch.run_id)))
            ],
            usages=groups.usages,
            server_restarts=self._restarts - restarts,
        )
        self._say(f"{len(names)} pipelines: {done.keeping_up} keep up, {len(watched)} batches")
        return done

    def drain(self, names: Sequence[str]) -> None:
        """Let no run begin any more, and wait for those tasks that have begun."""
        self._say("waiting for what is under way")
        deadline = time.monotonic() + _DRAIN_S
        for name in names:
            self._patiently(partial(self._stack.airflow.pause, name), deadline)
        under_way = "/dags/~/dagRuns/~/taskInstances?state=running&state=queued&limit=1"
        while self._stack.airflow.api("GET", under_way)["total_entries"]:
            if time.monotonic() > deadline:
                raise ResultWrong(f"Tasks are still under way after {_DRAIN_S:.0f} s")
            self._pass(1.0)

    def _patiently(self, ask: Callable[[], None], deadline: float) -> None:
        """Airflow's database is SQLite, and now and then locked for so long that a request fails."""
        while True:
            try:
                return ask()
            except SetupFailed:
                if time.monotonic() > deadline:
                    raise
            self._pass(1.0)

    def _pass(self, seconds: float) -> None:
        """Let time go by, with an eye on what has to run."""
        until = time.monotonic() + seconds
        while True:
            self._feed.check()
            if not self._stack.running:
                raise SetupFailed("A part of the stack ended by itself")
            if time.monotonic() - self._maintained > _MAINTENANCE_S:
                self._maintained = time.monotonic()
                self._restarts += self._stack.spark is not None and self._stack.spark.maintain()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LOOK_S))


def _check(servers: str, home: Path, sent: Sequence[tuple[str, Sent]]) -> None:
    """Each batch has read what was sent in the intervals since the one before it, and what is published is
    what a plain loop finds in them. Raises ResultWrong."""
    batches = published_batches(ledger_url(home))
    ledger = Ledger.open(ledger_url(home))
    for name, events in sent:
        stream = Stream(name, 1)
        of_stream = [batch for batch in batches if batch.stream == stream]
        require_equal(f"{name}: published batches", len(of_stream), ledger.head(stream).seq)
        before_ms = 0
        for batch in of_stream:
            until_ms = round(batch.clock * 1000)
            require_equal(
                f"{name}: records read by batch {batch.seq}", batch.read, events.count(before_ms, until_ms)
            )
            before_ms = until_ms
        require_equal(f"{name}: what was published", _published(servers, name), events.changes(before_ms))


def _published(servers: str, name: str) -> dict[str, list[tuple[int, bool]]]:
    """Key -> the changes in a pipeline's sink, and when they happened."""
    changes: dict[str, list[tuple[int, bool]]] = {}
    for message in messages(servers, _sink(name)):
        text, at_ms = message.value() or b"", message.timestamp()[1]
        changes.setdefault((message.key() or b"").decode(), []).append(
            (at_ms, json.loads(text)["isAvailable"])
        )
    return changes


def _overview(steps: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {
            "pipelines": step.pipelines,
            "keep up": step.keeping_up,
            "batches of each": spread_text(step.batches_of_each, 0),
            "batches per minute": f"{len(step.batches) / (step.end - step.begin) * 60:.1f}",
            "interval's end to published, s": spread_text(step.lags) if step.lags else "",
            "last interval ended, s ago": spread_text([step.end - at for at in step.clocks.values()], 0),
            "records": f"{sum(batch.read for batch in step.batches):,}",
            "retries": step.retries,
            "server anew": step.server_restarts,
            "processors busy": f"{step.busy:.0%}",
        }
        for step in steps
    ]


def _phases(steps: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {"seconds": name}
        | {
            f"{step.pipelines} pipelines": spread_text(step.phases[name], 2) if step.runs else ""
            for step in steps
        }
        for name in PHASES
    ]


def _usages(step: Measured) -> list[dict[str, Any]]:
    rows = []
    for usage in step.usages:
        is_ours = usage.group != OTHER_PROCESSES
        peak = f"{mib(usage.peak_bytes):,.0f}" if usage.peak_bytes is not None else ""
        rows.append(
            {
                "processes of": usage.group,
                "processor seconds": f"{usage.cpu_seconds:,.1f}",
                "share of all processors": f"{_share(step, usage):.1%}",
                "seconds per batch": f"{usage.cpu_seconds / max(len(step.batches), 1):.2f}"
                if is_ours
                else "",
                "processes at most": f"{usage.processes}" if is_ours else "",
                "memory at most, MiB": peak,
            }
        )
    return rows


def _share(step: Measured, usage: GroupUsage) -> float:
    return usage.cpu_seconds / (step.end - step.begin) / (os.cpu_count() or 1)


def _as_json(step: Measured) -> dict[str, Any]:
    numbers = {"lag": step.lags} | step.phases
    return {
        "pipelines": step.pipelines,
        "keeping_up": step.keeping_up,
        "minutes": (step.end - step.begin) / _MINUTE_S,
        "batches": dict(zip(step.clocks, step.batches_of_each, strict=True)),
        "seconds_behind": {name: step.end - clock for name, clock in step.clocks.items()},
        "seconds": {name: spread(values) for name, values in numbers.items() if values},
        "usages": [asdict(usage) for usage in step.usages],
        "busy": step.busy,
        "retries": step.retries,
        "server_restarts": step.server_restarts,
    }


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in pairs)


@click.command()
@click.option(
    "--pipelines",
    "steps",
    multiple=True,
    default=[50],
    show_default=True,
    type=click.IntRange(min=1),
    help="How many; more than once: so many, then more.",
)
@click.option("--minutes", default=10, show_default=True, help="For which each number of them is watched.")
@click.option("--events", default=100, show_default=True, help="New events of each, per minute.")
@click.option("--setting", "pairs", multiple=True, help="Of Airflow's, such as AIRFLOW__CORE__PARALLELISM=8.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(
    steps: tuple[int, ...], minutes: int, events: int, pairs: tuple[str, ...], json_wanted: bool
) -> None:
    """Let pipelines run every minute on a local Kafka, Spark and Airflow, which end after it."""
    events = max(events // PORTIONS, 1) * PORTIONS
    done = measure(steps, minutes, events, _settings(pairs), teller())
    if json_wanted:
        show_json({"steps": [_as_json(step) for step in done], "machine": machine(), "settings": list(pairs)})
        return
    show_table(_overview(done), f"Pipelines every minute, {events} new events each, on {machine()}")
    show_table(_phases(done), "From the interval's end to published, min / median / max")
    for step in done:
        show_table(_usages(step), f"{step.pipelines} pipelines for {minutes} minutes")


if __name__ == "__main__":
    main()
