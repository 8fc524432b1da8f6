"""A row of the table: the same batch by one worker of a cluster and by two, each pinned to a core of its own.

A task takes more than one core where it can: Python, its JVM and librdkafka work side by side.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.events import Load, send
from benchmarks.place import SOURCE, Place, create_topics, running, write_pipeline
from benchmarks.programs import Batch, Run
from benchmarks.spark_cluster import cluster
from benchmarks.turns import Row, Say, take_turns

_HOSTS = ("127.0.0.2", "127.0.0.3")
_MEMORY = "1g"  # what Spark gives an executor by default
_NAMES = {2: "two workers", 1: "one worker"}


def measure_cluster(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """`tidegate run`, the whole process, as the driver of clusters. Raises ResultWrong, CommandFailed."""
    with running(load.partitions, master) as place, ExitStack() as stack:
        say(f"sent in {send(place.servers, SOURCE, load):.1f} s")
        programs = {}
        for workers, name in _NAMES.items():
            folder = place.home / f"cluster-{workers}"
            folder.mkdir()
            url = stack.enter_context(cluster(folder, _HOSTS[:workers], place.env, _MEMORY, placed=_pinned))
            program = _Program(
                place._replace(env={**place.env, "TIDEGATE_SPARK_MASTER": url}), load.events, workers
            )
            programs[name] = program.run
        return [take_turns(f"{load.events:,} events on a cluster", programs, rounds, say)]


def _pinned(number: int, command: list[str]) -> list[str]:
    """Run a worker, and all that it starts, on a processor of its own."""
    return ["taskset", "--cpu-list", str(number), *command]


@dataclass(frozen=True)
class _Program:
    """Batches on one of the clusters; each is a generation of its own and reads the load from its begin."""

    place: Place
    events: int
    workers: int

    def run(self, number: int) -> Run:
        sink, generation = f"output-{self.workers}-{number}", 2 * number + self.workers
        create_topics(self.place.servers, 2, sink)
        write_pipeline(self.place.home, generation, sink=sink)
        return Batch(generation, SOURCE, sink, self.events).run(self.place)
