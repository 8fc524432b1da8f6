"""One batch by `tidegate run`, measured, and checked before its numbers count."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import LastingCommand, Usage, run_measured
from benchmarks.place import PIPELINE, PROJECT, STEPS, Place, ledger_url, topic_ends
from tidegate.ledger import Ledger, Stream

TIDEGATE = str(Path(sys.executable).parent / "tidegate")


class ResultWrong(Exception):
    """A program did not do what it had to: its speed means nothing."""


@dataclass(frozen=True)
class Run:
    """What a program took. `emitted`: how many records it sent out; None: it does not say, or is not there
    for that. `steps`: seconds of a batch's steps.
    """

    usage: Usage
    emitted: int | None = None
    steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """What a batch of a pipeline, as it is now written, has to do: read so many `records`, up to the end of
    the topic `source`, and send what it emits to the topic `sink`. Raises ResultWrong, CommandFailed.
    """

    generation: int
    source: str
    sink: str
    records: int
    pipeline: str = PIPELINE

    def run(self, place: Place, lasting: LastingCommand | None = None) -> Run:
        """`tidegate run` as a process, from start to exit; or in one that goes on, see `session`."""
        if lasting is not None:
            usage, output = lasting.ask(self.pipeline)
        else:
            command = [TIDEGATE, "run", self.pipeline, "--json"]
            usage, output = run_measured(command, place.env, place.home / "work")
        return self._checked(place, usage, json.loads(last_line(output)))

    def _checked(self, place: Place, usage: Usage, report: Mapping[str, Any]) -> Run:
        """`report` is what the command printed."""
        read, emitted = report["counts"]["read"], report["counts"]["emitted"]
        require_equal("records read", read, self.records)
        require_equal("records published", report["published"], {f"kafka:{self.sink}": emitted})
        head = Ledger.open(ledger_url(place.home)).head(Stream(self.pipeline, self.generation))
        ends = {(self.source, p): end for p, end in topic_ends(place.servers, self.source).items()}
        require_equal("the head's offsets", dict(head.offsets), ends)
        return Run(usage, int(emitted), {step: report["seconds"][step] for step in STEPS})


def session(place: Place) -> LastingCommand:
    """`tidegate run` in one process and one Spark session, one batch after the other."""
    command = [sys.executable, "-m", "benchmarks.one_session"]
    return LastingCommand(command, {**place.env, "PYTHONPATH": str(PROJECT)}, place.home / "work")


def last_line(output: str) -> str:
    """Where a command prints its result for programs."""
    return output.strip().splitlines()[-1]


def require_equal(what: str, found: object, expected: object) -> None:
    """Raises ResultWrong."""
    if found != expected:
        raise ResultWrong(f"{what}: {found} instead of {expected}")
