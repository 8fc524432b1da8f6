"""The kernel alone, on one thread: events per second of `tidegate.kernel.decide`, beside loops in Python.

`python -m benchmarks.kernel --help`
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.events import Load
from benchmarks.figures import show_json, show_table, spread, spread_text, teller
from benchmarks.naive import in_arrow
from benchmarks.programs import ResultWrong
from benchmarks.rows import end_times, sorted_batches
from benchmarks.strategies import STRATEGIES, Strategy
from tidegate import kernel

_SAME = ("key", "partition", "offset", "timestamp", "value")


@dataclass(frozen=True)
class Seconds:
    """The seconds of a run: `cpu` is the processor time of this process; `wall` also depends on other
    processes."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Compared:
    """The repeats of one strategy."""

    emit: str
    records: int
    emitted: int
    decided: tuple[Seconds, ...]
    naive: tuple[Seconds, ...]

    @property
    def ratios(self) -> list[float]:
        """Return for each pair how many times faster the kernel is, in processor time."""
        return [naive.cpu / decided.cpu for decided, naive in zip(self.decided, self.naive, strict=True)]

    def per_second(self, seconds: Iterable[float]) -> list[float]:
        return [self.records / second for second in seconds]


def compare(load: Load, repeat: int, say: Callable[[str], None], only: Sequence[str] = ()) -> list[Compared]:
    """Kernel and loop in turns, on the same batches. Raises ResultWrong when they disagree."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        return [_compare(name, STRATEGIES[name], load, repeat, say) for name in only or STRATEGIES]
    finally:
        pa.set_cpu_count(threads)


def _compare(name: str, strategy: Strategy, load: Load, repeat: int, say: Callable[[str], None]) -> Compared:
    keys = strategy.shape.keys(load)
    per_partition = max(keys // load.partitions, 1)
    stage = strategy.stage(per_partition)
    say(f"{name}: preparing {load.events:,} events of {keys:,} keys")
    batches = sorted_batches(load, strategy.shape, stage)
    times = end_times(load)
    end_ms = max(times.values())
    batch = kernel.Batch(times=times, clock=end_ms)
    value = stage.reduce.output_type(batches[0].schema.field("value").type)
    decided, naive, emitted = [], [], 0
    for number in range(1, repeat + 1):
        say(f"{name}, pair {number} of {repeat}")
        ours, seconds = _timed(lambda: list(kernel.decide(stage, batches, batch)))
        decided.append(seconds)
        theirs, seconds = _timed(lambda: list(in_arrow(strategy.loop(batches, end_ms, per_partition), value)))
        naive.append(seconds)
        emitted = _require_same(name, ours, theirs, load.events)
    return Compared(name, load.events, emitted, tuple(decided), tuple(naive))


def _timed(work: Callable[[], list[pa.RecordBatch]]) -> tuple[list[pa.RecordBatch], Seconds]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def _require_same(
    name: str, ours: Sequence[pa.RecordBatch], theirs: Sequence[pa.RecordBatch], records: int
) -> int:
    """Count the emissions, which must be equal on both sides and in the same order for each key."""
    decided = pa.Table.from_batches(ours)
    counts = json.loads(decided["counts"].drop_null()[0].as_py())
    emissions = _by_key(decided.filter(pc.equal(decided["kind"], kernel.EMISSION)))
    loop = _by_key(pa.Table.from_batches(theirs))
    if (taken := counts["used"] + counts.get("deduplicated", 0)) != records:
        raise ResultWrong(f"{name}: the kernel took {taken} of {records} records")
    if not emissions.equals(loop):
        raise ResultWrong(
            f"{name}: the kernel emitted {emissions.num_rows} records, the loop {loop.num_rows}; they differ"
        )
    return int(emissions.num_rows)


def _by_key(emissions: pa.Table) -> pa.Table:
    # the sort is stable, so what a key emits keeps its order
    chosen = emissions.select(_SAME).combine_chunks()
    return chosen.take(pc.sort_indices(chosen["key"])).combine_chunks()


def _shown(result: Compared) -> dict[str, Any]:
    return {
        "emit": result.emit,
        "emitted": f"{result.emitted:,}",
        "kernel, events/s": spread_text(result.per_second(run.cpu for run in result.decided), 0),
        "loop, events/s": spread_text(result.per_second(run.cpu for run in result.naive), 0),
        "kernel / loop": spread_text(result.ratios),
        "kernel, by the clock": spread_text(result.per_second(run.wall for run in result.decided), 0),
    }


def _as_json(result: Compared) -> dict[str, Any]:
    return {
        "emit": result.emit,
        "records": result.records,
        "emitted": result.emitted,
        "kernel_events_per_cpu_second": spread(result.per_second(run.cpu for run in result.decided)),
        "loop_events_per_cpu_second": spread(result.per_second(run.cpu for run in result.naive)),
        "kernel_events_per_second": spread(result.per_second(run.wall for run in result.decided)),
        "loop_events_per_second": spread(result.per_second(run.wall for run in result.naive)),
        "ratio": spread(result.ratios),
    }


@click.command()
@click.option("--events", default=Load.events, show_default=True)
@click.option("--keys", default=Load.keys, show_default=True, help="Strategies with timers get 1 % of them.")
@click.option("--quantities", default=Load.quantities, show_default=True, help="One event in N is sold out.")
@click.option("--repeat", default=3, show_default=True, help="Pairs of runs per strategy.")
@click.option("--only", multiple=True, type=click.Choice(list(STRATEGIES)), help="Some of the strategies.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(
    events: int, keys: int, quantities: int, repeat: int, only: tuple[str, ...], json_wanted: bool
) -> None:
    """Measure the kernel on one thread, beside loops over the records in Python."""
    results = compare(Load(events, keys, quantities=quantities), repeat, teller(), only)
    if json_wanted:
        show_json({"results": [_as_json(result) for result in results]})
    else:
        title = (
            f"The kernel on one core: {events:,} events, per second of processor time (min / median / max)"
        )
        show_table([_shown(result) for result in results], title)


if __name__ == "__main__":
    main()
