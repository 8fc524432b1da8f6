"""From record to published, where new records start the runs: a steady stream of events through the real
local stack (`schedule: {on_data: …}`, `tasks: one`, a kept Spark Connect server).

`python -m benchmarks.on_data --help`
"""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer

from benchmarks.figures import show_json, show_table, spread_text, teller
from benchmarks.place import (
    PIPELINE,
    PROJECT,
    SINK,
    SOURCE,
    create_topics,
    ledger_url,
    temporary_home,
    write_pipeline,
    write_project,
)
from benchmarks.programs import ResultWrong
from tidegate.ledger import Ledger, Stream
from tidegate_dev.stack import Stack

_TICK_S = 0.02
_PARTITIONS = 2
_WARM_BATCHES, _WARM_TIMEOUT_S = 5, 300.0
"""What is made once is made in the first batches: they start the session, and import what tasks need."""
_BOUND_P95_S = 10.0


@contextmanager
def fed(servers: str, rate: int) -> Iterator[None]:
    """Send `rate` events a second, with the present time as their timestamps, as long as the block runs."""
    end, dice = threading.Event(), random.Random(1)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})

    def feed() -> None:
        began, sent = time.monotonic(), 0
        while not end.wait(_TICK_S):
            for _ in range(int((time.monotonic() - began) * rate) - sent):
                event = {"storeId": "s1", "id": 1 + dice.randrange(5000), "quantity": dice.randrange(2)}
                producer.produce(SOURCE, json.dumps(event).encode())
                sent += 1
            producer.poll(0)
        producer.flush(30)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def ages(servers: str, seconds: float) -> list[float]:
    """Return how old each published message is when a `read_committed` consumer gets it, in seconds. A
    message has the timestamp of the record that caused it.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "on_data",
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
        }
    )
    consumer.subscribe([SINK])
    seen, end = [], time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    seen.append(time.time() - message.timestamp()[1] / 1000)
    finally:
        consumer.close()
    return seen


def measure(rate: int, seconds: float, turns: int) -> list[dict[str, float]]:
    """Return p50, p95, the largest age and the number of batches of each turn."""
    say = teller()
    with temporary_home() as home:
        write_pipeline(home)
        _start_on_data(home)
        say("starting the stack")
        with Stack(
            home, write_project(home, PROJECT / "benchmarks" / "idle_dags.py"), keeps_spark=True
        ) as stack:
            servers = stack.broker.bootstrap_servers
            create_topics(servers, _PARTITIONS, SOURCE, SINK)
            stack.airflow.wait_dag(PIPELINE)
            stack.airflow.unpause(PIPELINE)
            with fed(servers, rate):
                _warm(stack, home)
                return [_turn(servers, home, seconds, say, turn) for turn in range(1, turns + 1)]


def _warm(stack: Stack, home: Path) -> None:
    ledger, stream = Ledger.open(ledger_url(home)), Stream(PIPELINE, 1)
    end = time.monotonic() + _WARM_TIMEOUT_S
    while ledger.head(stream).seq < _WARM_BATCHES:
        if time.monotonic() > end:
            runs = stack.airflow.api("GET", f"/dags/{PIPELINE}/dagRuns")["dag_runs"]
            states = [(run["run_type"], run["state"]) for run in runs]
            raise ResultWrong(f"{ledger.head(stream).seq} batches after {_WARM_TIMEOUT_S:.0f} s: {states}")
        time.sleep(1)


def _turn(servers: str, home: Path, seconds: float, say: Any, turn: int) -> dict[str, float]:
    ledger, stream = Ledger.open(ledger_url(home)), Stream(PIPELINE, 1)
    first = ledger.head(stream).seq
    seen = ages(servers, seconds)
    batches = ledger.head(stream).seq - first
    hundredths = statistics.quantiles(seen, n=100)
    figures = {"p50": hundredths[49], "p95": hundredths[94], "max": max(seen), "messages": len(seen)}
    say(f"turn {turn}: p95 {figures['p95']:.1f} s, {batches} batches")
    return {**figures, "batches": batches}


def _start_on_data(home: Path) -> None:
    file = home / "pipelines" / f"{PIPELINE}.yaml"
    text = file.read_text().replace("schedule: null", "schedule: {on_data: {records: 1, or_after: 1s}}", 1)
    file.write_text(f"{text}\ntasks: one\n")


@click.command()
@click.option("--rate", default=1_000, show_default=True, help="Events a second.")
@click.option("--seconds", default=60.0, show_default=True, help="The length of a turn.")
@click.option("--turns", default=3, show_default=True, help="Turns.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(rate: int, seconds: float, turns: int, json_wanted: bool) -> None:
    """Measure the time from record to published, on a local Kafka, Spark and Airflow, which end after it."""
    measured = measure(rate, seconds, turns)
    if json_wanted:
        show_json({"rate": rate, "turns": measured, "bound": _BOUND_P95_S})
        return
    rows = [
        {"": name, "min / median / max": spread_text([turn[name] for turn in measured])}
        for name in measured[0]
    ]
    show_table(
        rows, f"Seconds from record to published at {rate:,} events a second; p95 at most {_BOUND_P95_S:.0f}"
    )


if __name__ == "__main__":
    main()
