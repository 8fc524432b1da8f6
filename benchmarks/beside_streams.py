"""Rows of the table: a batch of tidegate beside Kafka Streams, on the same events of the same broker."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.events import Load, send
from benchmarks.measure import LastingCommand
from benchmarks.outputs import require_same_output
from benchmarks.place import SOURCE, Place, create_topics, running, write_pipeline
from benchmarks.programs import Batch, Run, session
from benchmarks.streams import STREAMS, StreamsPeer
from benchmarks.turns import Row, Say, take_turns

COLD, WARM = "tidegate run", "tidegate, warm session"


def measure_cold(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """`tidegate run`, the whole process. Raises ResultWrong, CommandFailed, SetupFailed."""
    with running(load.partitions, master) as place:
        contest = _begin(place, load, say)
        programs = {COLD: contest.tidegate, STREAMS: contest.streams}
        return [take_turns(_title(load), programs, rounds, say, contest.check)]


def measure_warm(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """A batch in a process and session that have had one like it. Raises as `measure_cold`."""
    with running(load.partitions, master) as place:
        contest = _begin(place, load, say)
        with session(place) as lasting:
            say("warming the session")
            contest.tidegate(0, lasting)
            programs = {WARM: lambda number: contest.tidegate(number, lasting), STREAMS: contest.streams}
            return [take_turns(f"{_title(load)}, warm", programs, rounds, say, contest.check)]


def _begin(place: Place, load: Load, say: Say) -> _Contest:
    say("preparing Kafka Streams")
    peer = StreamsPeer.prepare(place.home)
    say(f"sending {load.events:,} events")
    say(f"sent in {send(place.servers, SOURCE, load):.1f} s")
    return _Contest(place, load, peer)


def _title(load: Load) -> str:
    return f"{load.events:,} events, {load.keys:,} keys"


@dataclass(frozen=True)
class _Contest:
    """A load that both read from its begin, in each round without state and into topics of that round.

    A round of tidegate is a generation of its pipeline, one of Kafka Streams an application.
    """

    place: Place
    load: Load
    peer: StreamsPeer

    def tidegate(self, number: int, lasting: LastingCommand | None = None) -> Run:
        """tidegate's turn, as a process of its own or in one that goes on."""
        sink, generation = _topic("tidegate", number), number + 1
        create_topics(self.place.servers, self.load.partitions, sink)
        write_pipeline(self.place.home, generation, sink=sink)
        return Batch(generation, SOURCE, sink, self.load.events).run(self.place, lasting)

    def streams(self, number: int) -> Run:
        """The peer's turn."""
        sink = _topic("streams", number)
        create_topics(self.place.servers, self.load.partitions, sink)
        return self.peer.run(self.place, SOURCE, sink, self.load.events)

    def check(self, number: int) -> None:
        """Raises ResultWrong unless both sent the same."""
        require_same_output(self.place.servers, _topic("tidegate", number), _topic("streams", number))


def _topic(program: str, number: int) -> str:
    return f"availability-{program}-{number}"
