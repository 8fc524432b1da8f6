"""What a Spark Connect server holds after so many batches of one stream, each by a connection of its own.

`python -m benchmarks.server --help`
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from benchmarks.events import Load, send
from benchmarks.figures import mib, show_json, show_table, teller
from benchmarks.measure import LastingCommand
from benchmarks.place import PIPELINE, SOURCE, running, write_pipeline
from benchmarks.programs import session
from benchmarks.turns import Say
from tidegate_dev.processes import own_share_bytes
from tidegate_dev.spark_server import SparkServer

_WARM = 50
"""Batches after which the server is to grow no more."""


@dataclass(frozen=True)
class ServerUsage:
    """After so many batches: the server's processes, and the memory of all of them, pages that they share
    counted once."""

    batches: int
    processes: int
    bytes: int
    seconds: float
    """Of the last batch."""


def measure(batches: int, every: int, load: Load, master: str, say: Say) -> list[ServerUsage]:
    """Run batches of one stream in one server, `load` in each, and look at it after each `every`."""
    with running(load.partitions, master) as place:
        write_pipeline(place.home, most=load.events)
        say(f"sending {batches * load.events:,} events")
        send(place.servers, SOURCE, replace(load, events=batches * load.events))
        with SparkServer(place.home, environment=place.env) as server:
            client = place._replace(env={**place.env, "TIDEGATE_SPARK_MASTER": server.url})
            with session(client) as lasting:
                return list(_usages(server, lasting, batches, every, say))


def _usages(
    server: SparkServer, lasting: LastingCommand, batches: int, every: int, say: Say
) -> Iterator[ServerUsage]:
    read = 0
    for number in range(1, batches + 1):
        usage, answer = lasting.ask(PIPELINE)
        read += json.loads(answer)["counts"]["read"]
        if number == 1 or number % every == 0:
            server_usage = _look(server.processes(), number, usage.seconds)
            memory = f"{server_usage.processes} processes, {mib(server_usage.bytes):,.0f} MiB"
            say(f"{number} batches, {read:,} records: {memory}")
            yield server_usage


def _look(processes: list[int], batches: int, seconds: float) -> ServerUsage:
    return ServerUsage(batches, len(processes), sum(map(own_share_bytes, processes)), seconds)


def growth(usages: list[ServerUsage]) -> float | None:
    """The most memory that was seen after the first 50 batches, by what there was then."""
    warm = [usage.bytes for usage in usages if usage.batches >= _WARM]
    return max(warm) / warm[0] if warm else None


def _shown(usages: list[ServerUsage]) -> list[dict[str, Any]]:
    return [
        {
            "batches": usage.batches,
            "processes": usage.processes,
            "memory, MiB": f"{mib(usage.bytes):,.0f}",
            "seconds of the last": f"{usage.seconds:.1f}",
        }
        for usage in usages
    ]


@click.command()
@click.option("--batches", default=1_000, show_default=True)
@click.option("--every", default=50, show_default=True, help="Look after each so many batches.")
@click.option("--events", default=1_000, show_default=True, help="Of a batch.")
@click.option("--keys", default=1_000, show_default=True, help="Products that they are about.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(batches: int, every: int, events: int, keys: int, json_wanted: bool) -> None:
    """Measure the memory and the processes of a Spark Connect server over many small batches."""
    usages = measure(batches, every, Load(events, keys), "local[*]", teller())
    ratio = growth(usages)
    if json_wanted:
        show_json({"held": [asdict(usage) for usage in usages], "growth": ratio})
        return
    text = "" if ratio is None else f", at most {ratio:.3f} of what it held after {_WARM}; the bound is 1.05"
    show_table(_shown(usages), f"A Spark Connect server over {batches:,} batches{text}")


if __name__ == "__main__":
    main()
