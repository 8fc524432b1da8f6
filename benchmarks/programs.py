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
    """The cost of a program's run.

    `emitted` is the number of records that it sent, or None if the program does not report it or
    does not emit. `steps` has the seconds of a batch's steps.
    """

    usage: Usage
    emitted: int | None = None
    steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """A batch of a pipeline file as it is written now: read `records` records, up to the end of the topic
    `source`, and send the emissions to the topic `sink`. Raises ResultWrong, CommandFailed."""

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
    """Return the last line of a command's output, where it prints its result for programs."""
    return output.strip().splitlines()[-1]


def require_equal(what: str, actual: object, expected: object) -> None:
    """Raises ResultWrong."""
    if actual != expected:
        raise ResultWrong(f"{what}: {actual} instead of {expected}")
