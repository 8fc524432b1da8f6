"""The two programs that are measured beside each other on the same Kafka range: tidegate and its peer."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.measure import Usage, run_measured
from benchmarks.place import PIPELINE, PROJECT, SINK, SOURCE, STEPS, ledger_url, write_pipeline
from tidegate.ledger import Ledger, Stream

Ends = Mapping[int, int]


class ResultWrong(Exception):
    """A program did not do what it had to: its speed means nothing."""


@dataclass(frozen=True)
class Range:
    """What batch number `seq` has to read: per partition of the input topic, from where and up to where."""

    seq: int
    starts: Ends
    ends: Ends

    @property
    def records(self) -> int:
        return sum(self.ends.values()) - sum(self.starts.values())


@dataclass(frozen=True)
class Measured:
    """One run of one program. `changes` is how many records it let out or wrote; `steps` are seconds."""

    program: str
    seq: int
    repeat: int
    usage: Usage
    records: int
    changes: int
    steps: dict[str, float]


def run_tidegate(home: Path, env: Mapping[str, str], wanted: Range, repeat: int) -> Measured:
    """`tidegate run` of one batch. Each repeat is a generation, so that it has a state of its own."""
    write_pipeline(home, generation=repeat)
    program = Path(sys.executable).parent / "tidegate"
    usage, output = run_measured([str(program), "run", PIPELINE, "--json"], env, home / "work")
    report = json.loads(_last_line(output))
    read, emitted = report["counts"]["read"], report["counts"]["emitted"]
    _require_equal("records read", read, wanted.records)
    _require_equal("records published", report["published"], {f"kafka:{SINK}": emitted})
    head = Ledger.open(ledger_url(home)).head(Stream(PIPELINE, repeat))
    _require_equal("the head's batch", head.seq, wanted.seq)
    _require_equal("the head's offsets", head.offsets, {(SOURCE, p): end for p, end in wanted.ends.items()})
    steps = {step: report["seconds"][step] for step in STEPS}
    return Measured("tidegate", wanted.seq, repeat, usage, read, emitted, steps)


def run_peer(home: Path, env: Mapping[str, str], wanted: Range, repeat: int) -> Measured:
    """The hand-written job on the same range, with the same settings of Spark, into a table of its own."""
    table = home / "peer" / f"{wanted.seq}-{repeat}"
    starts, ends = (json.dumps({SOURCE: offsets}) for offsets in (wanted.starts, wanted.ends))
    command = [sys.executable, "-m", "benchmarks.peer_job", json.dumps(_conf(env)), starts, ends, str(table)]
    usage, output = run_measured(command, {**env, "PYTHONPATH": str(PROJECT)}, home / "work")
    changes = DeltaTable(table).count()
    steps: dict[str, float] = json.loads(_last_line(output))
    return Measured("peer", wanted.seq, repeat, usage, wanted.records, changes, steps)


def require_same_changes(tidegate: Measured, peer: Measured) -> None:
    """Without earlier state both must find the same changes; they share no code that could err alike."""
    _require_equal("changes in the first batch, tidegate and peer", tidegate.changes, peer.changes)


def _conf(env: Mapping[str, str]) -> dict[str, str]:
    """What `tidegate run` sets on its Spark session: the peer gets the very same."""
    from tidegate.engine.session import _CONF

    jars = sorted((Path(env["TIDEGATE_HOME"]) / "jars" / "spark").glob("*.jar"))
    return {
        **_CONF,
        "spark.master": env["TIDEGATE_SPARK_MASTER"],
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "servers": env["TIDEGATE_KAFKA"],
    }


def _last_line(output: str) -> str:
    return output.strip().splitlines()[-1]


def _require_equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ResultWrong(f"{what}: {found} instead of {expected}")
