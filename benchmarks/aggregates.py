"""Each aggregate alone, on one thread: records per second of processor time, with an emission per window and
with one per record.

`python -m benchmarks.aggregates --help`
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.events import Load
from benchmarks.figures import show_table, teller
from benchmarks.rows import Shape, end_times, sorted_batches
from tidegate import kernel
from tidegate.kernel.aggregates import DISTINCT, FUNCTIONS

_WINDOW = kernel.Tumbling(60_000, 10_000)
_STAGES: dict[str, Callable[[kernel.Aggregates], kernel.Stage]] = {
    "window_close": lambda reduce: kernel.Stage(reduce, kernel.WindowClose(), _WINDOW),
    "update": lambda reduce: kernel.Stage(reduce, kernel.Update()),
}


def _aggregates() -> dict[str, kernel.Aggregates]:
    """Return each aggregate of a whole number, and a formula."""
    single = {
        name: kernel.Aggregates((kernel.Aggregate("q", name, "q"),)) for name in FUNCTIONS if name != DISTINCT
    }
    parts = (kernel.Aggregate("q", "sum", "q"), kernel.Aggregate("n", "count"))
    mean = kernel.Formula("mean", "sum(q) / count(*)", ("/", ("column", "q"), ("column", "n")))
    distinct = kernel.Aggregates((kernel.Aggregate("q", DISTINCT, "q"),))
    return {**single, "count(distinct)": distinct, "sum(q) / count(*)": kernel.Aggregates(parts, (mean,))}


def _arguments(reduce: kernel.Aggregates) -> Callable[[pa.Int32Array], pa.StructArray]:
    def columns(quantities: pa.Int32Array) -> pa.StructArray:
        numbers = quantities.cast(pa.int64())
        arrays = []
        for aggregate in reduce:
            if aggregate.rule.chooses:
                arrays.append(pa.StructArray.from_arrays([numbers, numbers], names=["value", "by"]))
            elif aggregate.rule.takes == "booleans":
                arrays.append(pc.greater(numbers, 0))
            else:
                arrays.append(numbers)
        return pa.StructArray.from_arrays(arrays, names=[aggregate.name for aggregate in reduce])

    return columns


def _rate(stage: kernel.Stage, reduce: kernel.Aggregates, load: Load) -> float:
    batches = sorted_batches(load, Shape(_arguments(reduce), keys_per_100=1), stage)
    times = end_times(load)
    batch = kernel.Batch(times=times, clock=max(times.values()))
    start = time.process_time()
    for _ in kernel.decide(stage, batches, batch):
        pass
    return load.events / (time.process_time() - start)


@click.command(help=__doc__)
@click.option("--events", default=300_000, show_default=True)
@click.option("--keys", default=100_000, show_default=True, help="A hundredth of them is used.")
def main(events: int, keys: int) -> None:
    say = teller()
    pa.set_cpu_count(1)
    load = Load(events, keys)
    rows = []
    for name, reduce in _aggregates().items():
        say(name)
        rates = {on: f"{_rate(stage(reduce), reduce, load):,.0f}" for on, stage in _STAGES.items()}
        on_columns = reduce.runs_on_columns(_arguments(reduce)(pa.array([], pa.int32())).type)
        rows.append({"aggregate": name, **rates, "decided": "on columns" if on_columns else "by record"})
    show_table(rows, f"Aggregates on one core: records per second of processor time, of {events:,}")


if __name__ == "__main__":
    main()
