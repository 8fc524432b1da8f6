"""Rows of the table: a batch of tidegate beside a peer, on the same events of the same broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from benchmarks.events import Load, send
from benchmarks.measure import LastingCommand, run_measured
from benchmarks.outputs import require_same_output
from benchmarks.peers import AVAILABILITY, KAFKA_STREAMS, Job, Peer, Rival
from benchmarks.place import SOURCE, Place, create_topics, running, write_pipeline
from benchmarks.programs import TIDEGATE, Batch, Run, session
from benchmarks.turns import Program, Row, Say, take_turns
from tidegate_dev.spark_server import SparkServer

KEPT_BATCHES = 10
"""A server that is kept has had thousands; from some ten on its JVM has compiled what a batch needs most."""

COLD, WARM = "tidegate run", "tidegate, warm session"
KEPT_SERVER = "tidegate run, kept Spark Connect server"


def measure_cold(
    load: Load, rounds: int, master: str, say: Say, job: Job = AVAILABILITY, rival: Rival = KAFKA_STREAMS
) -> list[Row]:
    """`tidegate run`, the whole process. Raises ResultWrong, CommandFailed, SetupFailed."""
    with _contest(load, master, say, job, rival) as contest:
        programs: dict[str, Program] = {COLD: contest.tidegate, rival.name: contest.peer_turn}
        return [take_turns(contest.title, programs, rounds, say, contest.check)]


def measure_warm(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """A batch in a process and session that have had one like it. Raises as `measure_cold`."""
    with (
        _contest(load, master, say, AVAILABILITY, KAFKA_STREAMS) as contest,
        session(contest.place) as lasting,
    ):
        say("warming the session")
        contest.tidegate(0, lasting)
        programs = {
            WARM: lambda number: contest.tidegate(number, lasting),
            contest.rival.name: contest.peer_turn,
        }
        return [take_turns(f"{contest.title}, warm", programs, rounds, say, contest.check)]


def measure_kept(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """`tidegate run` as a client of a Spark Connect server, in a session in which this stream has had
    KEPT_BATCHES. Its state and ledger are removed before each round. Raises as `measure_cold`.
    """
    with _contest(load, master, say, AVAILABILITY, KAFKA_STREAMS) as contest:
        place = contest.place
        with SparkServer(place.home, environment=place.env) as server:
            kept_server = replace(
                contest, place=place._replace(env={**place.env, "TIDEGATE_SPARK_MASTER": server.url})
            )
            say(f"warming the session with {KEPT_BATCHES} batches")
            for number in range(KEPT_BATCHES):
                kept_server.tidegate_anew(-number)  # turns count from 1
            programs: dict[str, Program] = {
                KEPT_SERVER: kept_server.tidegate_anew,
                contest.rival.name: contest.peer_turn,
            }
            return [take_turns(f"{contest.title}, kept server", programs, rounds, say, contest.check)]


@contextmanager
def _contest(load: Load, master: str, say: Say, job: Job, rival: Rival) -> Iterator[_Contest]:
    """The load is sent, and the peer ready to start."""
    with running(load.partitions, master) as place:
        say(f"preparing {rival.name}")
        peer = rival.prepare(place.home, job)
        say(f"sending {load.events:,} events")
        say(f"sent in {send(place.servers, SOURCE, load):.1f} s")
        yield _Contest(place, load, job, rival, peer)


@dataclass(frozen=True)
class _Contest:
    """A load that both read from its begin, in each round without state and into topics of that round.

    A round of tidegate is a generation of its pipeline, one of Kafka Streams an application.
    """

    place: Place
    load: Load
    job: Job
    rival: Rival
    peer: Peer

    @property
    def title(self) -> str:
        """Return the pipeline and the load as a title."""
        return f"{self.job.pipeline}: {self.load.events:,} events, {self.load.keys:,} keys"

    def tidegate(self, number: int, lasting: LastingCommand | None = None) -> Run:
        """tidegate's turn, as a process of its own or in one that goes on."""
        return self._batch(_topic("tidegate", number), number + 1).run(self.place, lasting)

    def tidegate_anew(self, number: int) -> Run:
        """tidegate's turn as a process of its own, of a stream that is the same in each round but for what it
        has stored.
        """
        for ledger in self.place.home.glob("ledger.db*"):
            ledger.unlink()
        shutil.rmtree(self.place.home / "lake", ignore_errors=True)
        run_measured([TIDEGATE, "migrate"], self.place.env, self.place.home)  # as the peer's topics are there
        return self._batch(_topic("tidegate", number), generation=1).run(self.place)

    def peer_turn(self, number: int) -> Run:
        """The peer's turn."""
        sink = _topic("peer", number)
        create_topics(self.place.servers, self.load.partitions, sink)
        return self.peer.run(self.place, SOURCE, sink, self.load.events)

    def _batch(self, sink: str, generation: int) -> Batch:
        """A batch of all events, of a pipeline that is written for it, into a new topic."""
        create_topics(self.place.servers, self.load.partitions, sink)
        write_pipeline(self.place.home, generation, sink=sink, pipeline=self.job.pipeline)
        return Batch(generation, SOURCE, sink, self.load.events, self.job.pipeline)

    def check(self, number: int) -> None:
        """Raises ResultWrong unless both sent the same, or the peer sends nothing at all."""
        if self.rival.sends:
            require_same_output(self.place.servers, _topic("tidegate", number), _topic("peer", number))


def _topic(program: str, number: int) -> str:
    return f"output-{program}-{number}"
