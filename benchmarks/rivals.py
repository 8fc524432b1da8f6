"""What tidegate is measured by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.jobs import Job
from benchmarks.place import Place
from benchmarks.programs import Run
from benchmarks.spark_peers import BARE, WITH_MERGE, WITH_STATE, BareJob, StructuredStreaming
from benchmarks.streams import STREAMS, StreamsPeer


class Peer(Protocol):
    """Another program for a job."""

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """A whole process without state from before. It reads all records of `source`, which are so many, and
        sends its output to `sink`. Raises ResultWrong, CommandFailed.
        """


@dataclass(frozen=True)
class Rival:
    """A peer that is not there yet. `prepare` fetches and compiles it in a home, which is not measured.

    `sends`: its output must be the same as tidegate's.
    """

    name: str
    prepare: Callable[[Path, Job], Peer]
    sends: bool = True


KAFKA_STREAMS = Rival(STREAMS, lambda home, job: StreamsPeer.prepare(home, job.streams))
# these know one job only, availability
STRUCTURED_STREAMING = Rival(WITH_STATE, lambda home, _: StructuredStreaming.prepare(home, WITH_STATE))
STRUCTURED_STREAMING_BY_MERGE = Rival(
    WITH_MERGE, lambda home, _: StructuredStreaming.prepare(home, WITH_MERGE)
)
BARE_JOB = Rival(BARE, lambda *_: BareJob(), sends=False)
