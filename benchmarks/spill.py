"""Measure the memory of a buffer that spills: `tidegate run` suppresses, and then emits, N and 10 N keys.

`python -m benchmarks.spill --help`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.events import Load, send
from benchmarks.figures import mib, show_json, show_table, teller
from benchmarks.measure import Usage, run_measured
from benchmarks.place import PIPELINE, SOURCE, running, write_stage
from benchmarks.programs import TIDEGATE, ResultWrong, last_line

_STAGE = "held"
# The events are from the first hours of 2025: nothing is due at the first instant, everything at the second.
_CLOCKS = {"held": "2025-01-01T12:00:00Z", "emitted": "2025-01-10T00:00:00Z"}
_TIMES = 10


@dataclass(frozen=True)
class BufferRun:
    """A batch that holds back `keys`, or lets them out (`what`), and what it took."""

    buffer: str
    keys: int
    what: str
    usage: Usage


def measure_buffers(keys: int, master: str, say: Callable[[str], None]) -> list[BufferRun]:
    """A bounded buffer that is half full, one that spills with as many keys, and with ten times as many."""
    load = Load(events=keys, keys=keys * _TIMES, in_turn=True)
    results = []
    with running(load.partitions, master) as (home, env):
        say(f"sending {keys:,} events")
        send(env["TIDEGATE_KAFKA"], SOURCE, load)
        results += _measure(home, env, 1, "emit_early", keys, keys, say)
        results += _measure(home, env, 2, "spill", keys, keys, say)
        more = replace(load, first=keys, events=keys * (_TIMES - 1))
        say(f"sending {more.events:,} events")
        send(env["TIDEGATE_KAFKA"], SOURCE, more)
        results += _measure(home, env, 3, "spill", keys, keys * _TIMES, say)
    return results


def _measure(
    home: Path,
    env: Mapping[str, str],
    generation: int,
    when_full: str,
    bound: int,
    keys: int,
    say: Callable[[str], None],
) -> list[BufferRun]:
    """Two batches of a generation of its own: one holds all keys back, and one lets them all out."""
    buffer = f"{{max_records: {bound}, when_full: {when_full}}}"
    emit = f"{{on: time_limit, after: 2d, buffer: {buffer}}}"
    write_stage(
        home, generation, f'{{name: {_STAGE}, select: {{n: "quantity"}}, reduce: latest, emit: {emit}}}'
    )
    results = []
    for what, clock in _CLOCKS.items():
        say(f"{when_full}, {keys:,} keys {what}")
        command = [TIDEGATE, "run", PIPELINE, "--clock", clock, "--json"]
        usage, output = run_measured(command, env, home / "work")
        _require(what, json.loads(last_line(output))["stages"][_STAGE], keys)
        results.append(BufferRun(when_full, keys, what, usage))
    return results


def _require(what: str, counts: Mapping[str, float], keys: int) -> None:
    suppressed, emitted = counts.get("suppression-buffer-records", 0), counts.get("emitted", 0)
    if (suppressed, emitted) != ((keys, 0) if what == "held" else (0, keys)):
        raise ResultWrong(f"Of {keys} keys, {suppressed} are held back and {emitted} were emitted")


def _shown(run: BufferRun) -> dict[str, Any]:
    return {
        "buffer": run.buffer,
        "keys": f"{run.keys:,}",
        "batch": run.what,
        "largest Python worker, MiB": f"{mib(run.usage.peak_worker_bytes):,.0f}",
        "all processes, MiB": f"{mib(run.usage.peak_tree_bytes):,.0f}",
        "processor seconds": f"{run.usage.cpu_seconds:,.1f}",
        "seconds": f"{run.usage.seconds:,.1f}",
    }


@click.command()
@click.option("--keys", default=100_000, show_default=True, help="N; the bound, per partition.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(keys: int, master: str, json_wanted: bool) -> None:
    """Measure the memory of `tidegate run` with a bounded buffer, and with one that spills."""
    results = measure_buffers(keys, master, teller())
    if json_wanted:
        show_json({"results": [asdict(result) for result in results]})
    else:
        show_table([_shown(result) for result in results], "A time limit, with what it holds back")


if __name__ == "__main__":
    main()
