"""One outbox into Kafka by one process and by several, each of which may use the same share of a core.

On a machine of two cores, two publishers and a broker cannot have a core each. So the kernel gives each
publisher a share of a core, and the broker has what is left. The figure tells whether one process limits a
publication, as long as the broker is not what is too slow.

`python -m benchmarks.publication_scale --help`
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.figures import machine, show_json, teller
from benchmarks.measure import Usage
from benchmarks.place import temporary_home
from benchmarks.programs import Run
from benchmarks.publication import (
    in_one_process,
    in_shards,
    outbox_of,
    pipeline,
    require_all,
    sink_of,
    warm_up,
)
from benchmarks.results import save_option, save_rows
from benchmarks.shares import Share, share_of_core
from benchmarks.spark_cluster import cluster
from benchmarks.turns import Row, Say, row_object, show_row, take_turns
from tidegate.errors import TidegateError
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.shard import SendShards, SendTask
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.sinks.outbox import Outbox
from tidegate.spark.batch import send_shards
from tidegate.spark.session import OwnSession
from tidegate_dev.broker import KafkaBroker

_BESIDE = "one process"
_PARTITIONS = 16
_FEW = 20_000
"""Messages that are sent before the first turn: a batch that is published has used its workers before."""
_HOSTS = ("127.0.0.2", "127.0.0.3")
Publish = Callable[[KafkaConfig, KafkaSink, Outbox], float]
"""Publishes an outbox, and returns the seconds."""


@dataclass(frozen=True)
class Way:
    """Some publishers, the share of a core of each, and how they are started."""

    title: str
    publishers: int
    share: float
    started: Callable[[Path, Sequence[Share]], Any]
    bound: float | None = None


class OwnProcesses:
    """Processes that have done their imports, each within a share.

    They stand for the Python workers of Spark's tasks, which call the same function.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        # A fork would take the connections of this process with it.
        spawn = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, spawn) for _ in shares]
        for pool, share in zip(self._pools, shares, strict=True):
            share.take(pool.submit(_imported).result())

    def __enter__(self) -> OwnProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools:
            pool.shutdown()

    def run(self, publish: Publish, *arguments: Any) -> float:
        """Publish in the first process."""
        return self._pools[0].submit(publish, *arguments).result()

    def send(self, tasks: Sequence[SendTask]) -> list[int]:
        """Send each shard by a process of its own."""
        futures = [pool.submit(task.send) for pool, task in zip(self._pools, tasks, strict=True)]
        return [future.result() for future in futures]


def _imported() -> int:
    """Return the number of this process, which has imported this module."""
    return os.getpid()


@contextmanager
def _processes(_: Path, shares: Sequence[Share]) -> Iterator[SendShards]:
    with OwnProcesses(shares) as processes:
        yield processes.send


@contextmanager
def _spark_tasks(folder: Path, shares: Sequence[Share]) -> Iterator[SendShards]:
    """Let the tasks of a cluster send, whose workers have one share each."""
    hosts = _HOSTS[: len(shares)]

    def within_share(number: int, command: list[str]) -> list[str]:
        return shares[number].command(command)

    with cluster(folder, hosts, memory="1g", placed=within_share) as master, OwnSession(master, None) as own:
        session = own.open(0)
        warm_up(session, len(shares))
        yield partial(send_shards, session, pipeline())


WAYS = {
    "publication": Way("two Spark tasks on two workers", 2, 0.5, _spark_tasks, bound=0.62),
    "publication-16": Way("sixteen processes", 16, 0.08, _processes),
}


def measure(way: Way, records: int, rounds: int, say: Say) -> Row:
    """Publish the same outbox in turns, each time into a topic of its own.

    Raises ResultWrong; SetupFailed if this user cannot give shares of a core.
    """
    with ExitStack() as stack:
        home = stack.enter_context(temporary_home())
        broker = stack.enter_context(KafkaBroker(home))
        names = (f"publisher-{number}" for number in range(way.publishers))
        shares = [stack.enter_context(share_of_core(name, way.share)) for name in names]
        alone = stack.enter_context(share_of_core("alone", way.share))
        single = stack.enter_context(OwnProcesses([alone]))
        send = stack.enter_context(way.started(home, shares))
        config = KafkaConfig.parse(broker.bootstrap_servers)
        with KafkaLog(config) as log:
            log.ensure_progress_topic()

        few, full = (outbox_of(home / f"{size}", size, way.publishers) for size in (_FEW, records))

        def turn(publish: Publish, name: str, number: int) -> Run:
            sink, outbox = sink_of(config, f"{name}-{number}", _PARTITIONS), full if number else few
            seconds = publish(config, sink, outbox)
            require_all(config, sink, outbox)
            return Run(Usage(seconds, 0.0, 0, 0), outbox.emitted)

        programs = {
            way.title: partial(turn, partial(in_shards, send, way.publishers), "shards"),
            _BESIDE: partial(turn, partial(single.run, in_one_process), "one"),
        }
        for program in programs.values():
            program(0)
        title = f"Publication of {records:,} messages, {way.share:g} of a core for each publisher"
        return take_turns(title, programs, rounds, say)


@click.command()
@click.argument("names", metavar="[ROW]...", nargs=-1, type=click.Choice(list(WAYS)))
@click.option("--records", default=4_000_000, show_default=True, help="Messages in the outbox.")
@click.option("--turns", default=3, show_default=True, help="Turns of each program.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
@save_option
def main(names: tuple[str, ...], records: int, turns: int, json_wanted: bool, save: Path | None) -> None:
    """Measure how a publication grows with its publishers. Needs root, for the kernel's control groups."""
    say, objects = teller(), []
    for name in names or WAYS:
        way = WAYS[name]
        try:
            row = measure(way, records, turns, say)
        except TidegateError as error:
            raise click.ClickException(str(error)) from error
        objects.append({"name": name, "bound": way.bound, "machine": machine(), **row_object(row)})
        if save is not None:
            save_rows(save, objects[-1:])
        if not json_wanted:
            show_row(row)
    if json_wanted:
        show_json({"rows": objects})


if __name__ == "__main__":
    main()
