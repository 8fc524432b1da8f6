"""The peers on Spark: Structured Streaming with the same job, and a bare job that does nothing."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import run_measured
from benchmarks.place import PROJECT, Place
from benchmarks.programs import Run, last_line, require_equal
from tidegate_dev.jars import ensure_jars

WITH_STATE, WITH_MERGE = "transformWithState", "foreachBatch + MERGE"
BARE = "bare Spark job"
LOCK = Path(__file__).with_name("structured_streaming") / "jars.lock"
_MODULES = {WITH_STATE: "with_state", WITH_MERGE: "with_merge"}


@dataclass(frozen=True)
class StructuredStreaming:
    """One of the two programs. `jars` as Spark takes them."""

    module: str
    jars: str

    @classmethod
    def prepare(cls, home: Path, program: str) -> StructuredStreaming:
        """Fetch the jars below `home` if they are not there yet. Raises SetupFailed."""
        jars = ensure_jars("spark", home, LOCK)
        return cls(f"benchmarks.structured_streaming.{_MODULES[program]}", ",".join(map(str, jars)))

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """Run the peer as `beside_peers.Peer` describes."""
        folder = place.home / "structured-streaming"
        arguments = [place.servers, source, sink, str(folder), self.jars]
        run = _run_module(place, self.module, *arguments, records=records)
        shutil.rmtree(folder)
        return run


@dataclass(frozen=True)
class BareJob:
    """A session, and as many rows as there are events through `mapInArrow`. It reads and sends nothing."""

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """Run the job as `beside_peers.Peer` describes; `source` and `sink` have no effect."""
        return _run_module(place, "benchmarks.bare_job", str(records), records=records)


def _run_module(place: Place, module: str, *arguments: str, records: int) -> Run:
    """A program that prints how many records it has processed."""
    command = [sys.executable, "-m", module, *arguments]
    usage, output = run_measured(command, {**place.env, "PYTHONPATH": str(PROJECT)}, place.home / "work")
    require_equal("records processed", int(last_line(output)), records)
    return Run(usage)
