"""A whole batch, `tidegate run` from start to exit, beside a plain Spark job on the same records.

`python -m benchmarks.batch --help`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.events import Load, send
from benchmarks.figures import mib, show_json, show_table, spread, spread_text, teller
from benchmarks.place import SOURCE, running, source_ends
from benchmarks.programs import Measured, Range, ResultWrong, require_same_changes, run_peer, run_tidegate

Say = Callable[[str], None]
PROGRAMS = ("tidegate", "peer")


@dataclass(frozen=True)
class Result:
    """All runs, in the order in which they were made, and the seconds that sending each load took."""

    load: Load
    master: str
    sending: tuple[float, ...]
    runs: tuple[Measured, ...]

    def of(self, program: str, seq: int) -> list[Measured]:
        return [run for run in self.runs if (run.program, run.seq) == (program, seq)]

    @property
    def batches(self) -> list[int]:
        return sorted({run.seq for run in self.runs})

    def ratios(self, seq: int) -> list[float]:
        """Wall seconds of tidegate by those of the peer, pair by pair."""
        pairs = zip(*(self.of(program, seq) for program in PROGRAMS), strict=True)
        return [ours.usage.seconds / theirs.usage.seconds for ours, theirs in pairs]


def measure_batches(load: Load, more: int, repeat: int, master: str, say: Say) -> Result:
    """Send a load and read it in pairs of tidegate and peer; then the same with `more` events on top."""
    loads = [load, replace(load, first=load.events, events=more)] if more else [load]
    sending: list[float] = []
    runs: list[Measured] = []
    with running(load.partitions, master) as (home, env):
        servers = env["TIDEGATE_KAFKA"]
        ends = source_ends(servers)
        for seq, each in enumerate(loads, start=1):
            say(f"sending {each.events:,} events")
            sending.append(send(servers, SOURCE, each))
            say(f"sent in {sending[-1]:.1f} s")
            starts, ends = ends, source_ends(servers)
            wanted = Range(seq, starts, ends)
            if wanted.records != each.events:
                raise ResultWrong(f"{each.events} events were sent, but {wanted.records} are in the topic")
            for number in range(1, repeat + 1):
                say(f"batch {seq}, pair {number} of {repeat}")
                runs += _pair(home, env, wanted, number)
    return Result(load, master, tuple(sending), tuple(runs))


def _pair(home: Path, env: dict[str, str], wanted: Range, number: int) -> tuple[Measured, Measured]:
    ours = run_tidegate(home, env, wanted, number)
    theirs = run_peer(home, env, wanted, number)
    if wanted.seq == 1:
        require_same_changes(ours, theirs)
    return ours, theirs


def rows_shown(result: Result, seq: int) -> list[dict[str, Any]]:
    """One batch as a table: the programs side by side, each number as `min / median / max`."""
    columns = {program: _column(result.of(program, seq)) for program in PROGRAMS}
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    return [
        {"": name, **{program: column.get(name) for program, column in columns.items()}} for name in names
    ]


def _column(runs: list[Measured]) -> dict[str, str]:
    usages = [run.usage for run in runs]
    column = {
        "records read": f"{runs[0].records:,}",
        "changes": f"{runs[0].changes:,}",
        "seconds, whole process": spread_text([usage.seconds for usage in usages]),
        "records per second": spread_text([run.records / run.usage.seconds for run in runs], 0),
        "processor seconds": spread_text([usage.cpu_seconds for usage in usages]),
        "peak memory, all processes, MiB": spread_text([mib(usage.peak_tree_bytes) for usage in usages], 0),
        "peak memory, largest, MiB": spread_text([mib(usage.peak_process_bytes) for usage in usages], 0),
    }
    steps = {f"seconds, {step}": spread_text([run.steps[step] for run in runs]) for step in runs[0].steps}
    return column | steps


def as_json(result: Result) -> dict[str, Any]:
    """Everything that was measured, and the ratios."""
    ratios = {seq: result.ratios(seq) for seq in result.batches}
    return asdict(result) | {"ratio": {str(seq): spread(each) for seq, each in ratios.items()}}


@click.command()
@click.option("--events", default=Load.events, show_default=True, help="Events in the first batch.")
@click.option("--keys", default=Load.keys, show_default=True, help="Products that they are about.")
@click.option("--partitions", default=Load.partitions, show_default=True, help="Of the topics.")
@click.option("--quantities", default=Load.quantities, show_default=True, help="One event in N is sold out.")
@click.option("--more", default=100_000, show_default=True, help="Events in the second batch; 0: none.")
@click.option("--repeat", default=3, show_default=True, help="Pairs of runs per batch.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's, of both programs.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(
    events: int,
    keys: int,
    partitions: int,
    quantities: int,
    more: int,
    repeat: int,
    master: str,
    json_wanted: bool,
) -> None:
    """Measure `tidegate run` and the hand-written peer, in pairs, on the same Kafka records."""
    load = Load(events, keys, partitions, quantities)
    result = measure_batches(load, more, repeat, master, teller())
    if json_wanted:
        show_json(as_json(result))
        return
    for seq in result.batches:
        ratio = spread_text(result.ratios(seq), 2)
        show_table(
            rows_shown(result, seq), f"Batch {seq} on {master}: tidegate / peer = {ratio} in wall seconds"
        )


if __name__ == "__main__":
    main()
