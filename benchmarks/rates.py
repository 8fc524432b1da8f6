"""The rate of each emit strategy, window, aggregate and join alone, on one thread: records per second of
processor time. All of them come from the registries of the kernel.

`python -m benchmarks.rates --help`
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

import yaml
from benchmarks.events import Load
from benchmarks.figures import show_json, show_table, teller
from benchmarks.programs import ResultWrong
from benchmarks.rows import Shape, end_times, sorted_batches
from benchmarks.strategies import change_columns
from tidegate import kernel
from tidegate.errors import PipelineInvalid
from tidegate.kernel.aggregates import DISTINCT, FUNCTIONS
from tidegate.kernel.options import Option, options_of
from tidegate.kernel.reduce import Reduce
from tidegate.kernel.strategies import OF_FIELDS, STRATEGIES
from tidegate.kernel.strategies.any_of import TRIGGERS, AnyOf
from tidegate.kernel.strategies.join import Joined
from tidegate.kernel.windows import WINDOWS
from tidegate.model.kernel_stages import kernel_stage
from tidegate.yaml.load import parse_case_pipeline
from tidegate.yaml.tree import read

BOUND = 1_000_000
"""Records per second on one core that each rate is compared with."""
_SOURCE = {"topics": ["stock"], "format": "json", "columns": "quantity bigint"}
_EVERY = {"select": {"quantity": "quantity"}}
_SUM = {"reduce": {"quantity": "sum(quantity)"}}
_DURATIONS = {"every": "20s", "offset": "0s"}
_SIZE = "1m"
_MATCHED_MS = 1_000
_KEEP_MS = 60_000


@dataclass(frozen=True)
class Measured:
    """A stage whose rate is measured, on records of a shape."""

    kind: str
    name: str
    stage: kernel.Stage
    shape: Shape


@dataclass(frozen=True)
class Rate:
    """The records per second of processor time; `emitted` for each record."""

    measured: Measured
    per_second: float
    emitted: float


def all_measured() -> Iterator[Measured]:
    """Yield all that the registries have."""
    for name, declared in STRATEGIES.items():
        stage = _stage(*_with_strategy(name, declared))
        yield Measured("emit", name, stage, Shape(_arguments(stage.reduce), keys_per_100=1))
    triggers = tuple(_triggers())
    yield Measured("emit", "any", kernel.Stage(kernel.Latest(), AnyOf(triggers)), _FEW_KEYS)
    for strategy in OF_FIELDS:
        yield Measured("field", strategy.on or strategy.__name__, *_OF_FIELD[strategy]())
    for window in WINDOWS:
        for on in ("window_close", "update"):
            yield Measured(f"window, {on}", options_of(window)[0].written, _windowed(window, on), _FEW_KEYS)
    for name, reduce in _aggregates().items():
        shape = Shape(_arguments(reduce), keys_per_100=1)
        closing = kernel.Stage(reduce, kernel.WindowClose(), kernel.Tumbling(60_000, 10_000))
        yield Measured("aggregate, window_close", name, closing, shape)
        yield Measured("aggregate, update", name, kernel.Stage(reduce, kernel.Update()), shape)


# stages of the registries, by the examples of their options


def _stage(*written: dict[str, Any]) -> kernel.Stage:
    """Return the first of these stages that a pipeline file may have."""
    for fields in written:
        stage = {"name": "measured", **fields}
        try:
            pipeline = parse_case_pipeline({"pipeline": "p", "source": _SOURCE, "stages": [stage]}, "p")
        except PipelineInvalid:
            continue
        return kernel_stage(pipeline, pipeline.stages[0])
    raise AssertionError(f"no file can have {written[0]}")


def _with_strategy(name: str, declared: type[kernel.Emit]) -> list[dict[str, Any]]:
    """Return stages with a strategy: that of a new pipeline, or with the options that it requires, and one
    more.
    """
    if declared.sample is not None:
        return [read(declared.sample.stage.replace("{select}", "select: {quantity: quantity}"), name).data]
    required = {option.written: _example(option) for option in options_of(declared) if option.required}
    optional = [{option.written: _example(option)} for option in options_of(declared) if not option.required]
    emits = [{"on": name, **required, **more} for more in ({}, *optional)]
    window = {"window": {"tumbling": _SIZE}}
    return [{**part, "emit": emit} for emit in emits for part in (_EVERY, {**_SUM, **window}, _SUM)]


def _windowed(window: type[kernel.Window], on: str) -> kernel.Stage:
    """Return a stage of sums with a window of a minute, or of 20 seconds each minute."""
    size, *further = options_of(window)
    written = {size.written: _SIZE}
    written |= {option.written: _DURATIONS[option.written] for option in further if option.required}
    return _stage({**_SUM, "window": written, "emit": {"on": on}})


def _triggers() -> Iterator[kernel.Emit]:
    for name in list(TRIGGERS)[:2]:
        yield _stage(*_with_strategy(name, STRATEGIES[name])).emit


def _example(option: Option) -> Any:
    return yaml.safe_load(option.example)[option.written]


# stages that other fields than `emit` ask for


def _joined() -> tuple[kernel.Stage, Shape]:
    join = kernel.Join("left", "right", "inner", None, _MATCHED_MS, _MATCHED_MS, 0)
    return kernel.Stage(Joined(), join, join.window, deduplicate="none"), Shape(_sides, keys_per_100=10)


def _in_sequence() -> tuple[kernel.Stage, Shape]:
    stage = kernel.Stage(kernel.Latest(), kernel.InSequence(), deduplicate="none", by_time=True)
    return stage, Shape(change_columns)


def _once() -> tuple[kernel.Stage, Shape]:
    return kernel.Stage(kernel.Latest(), kernel.Once(_KEEP_MS)), Shape(_numbers)


def _last_record() -> tuple[kernel.Stage, Shape]:
    return kernel.Stage(kernel.Latest(), kernel.LastRecord()), Shape(_frames)


_OF_FIELD: dict[type[kernel.Emit], Callable[[], tuple[kernel.Stage, Shape]]] = {
    kernel.Once: _once,
    kernel.InSequence: _in_sequence,
    kernel.LastRecord: _last_record,
    kernel.Join: _joined,
}


# values of records


def _numbers(quantities: pa.Int32Array) -> pa.StructArray:
    return pa.StructArray.from_arrays([quantities.cast(pa.int64())], names=["quantity"])


def _frames(quantities: pa.Int32Array) -> pa.StructArray:
    frames = [quantities, pa.repeat(False, len(quantities))]
    return pa.StructArray.from_arrays(frames, names=["frame", "deleted"])


def _sides(quantities: pa.Int32Array) -> pa.StructArray:
    """Return values of a join, half of them of the left side."""
    numbers = quantities.cast(pa.int64())
    is_left = pc.less(numbers, 10)
    left, right = pc.if_else(is_left, numbers, None), pc.if_else(is_left, None, numbers)
    return pa.StructArray.from_arrays([left, right, is_left], names=["left", "right", "_is_left"])


_FEW_KEYS = Shape(_numbers, keys_per_100=1)


def _aggregates() -> dict[str, kernel.Aggregates]:
    """Return each aggregate of a whole number, and a formula."""
    single = {name: kernel.Aggregates((kernel.Aggregate("q", name, "q"),)) for name in FUNCTIONS}
    single["count(distinct)"] = single.pop(DISTINCT)
    parts = (kernel.Aggregate("q", "sum", "q"), kernel.Aggregate("n", "count"))
    mean = kernel.Formula("mean", "sum(q) / count(*)", ("/", ("column", "q"), ("column", "n")))
    return {**single, mean.text: kernel.Aggregates(parts, (mean,))}


def _arguments(reduce: Reduce) -> Callable[[pa.Int32Array], pa.StructArray]:
    def columns(quantities: pa.Int32Array) -> pa.StructArray:
        numbers = quantities.cast(pa.int64())
        arrays = []
        if not reduce.by_name:
            return _numbers(quantities)
        for aggregate in reduce.by_name.values():
            if aggregate.rule.chooses:
                arrays.append(pa.StructArray.from_arrays([numbers, numbers], names=["value", "by"]))
            elif aggregate.rule.takes == "booleans":
                arrays.append(pc.greater(numbers, 0))
            else:
                arrays.append(numbers)
        return pa.StructArray.from_arrays(arrays, names=[*reduce.by_name])

    return columns


# the measurement


def measure(measured: Measured, load: Load, repeat: int = 1) -> Rate:
    """Return the best rate of some runs, in each of which the kernel decides all records of the load."""
    batches = sorted_batches(load, measured.shape, measured.stage)
    times = end_times(load)
    batch = kernel.Batch(times=times, clock=max(times.values()))
    runs = [_run(measured.stage, batches, batch) for _ in range(repeat)]
    counts = runs[0][1]
    if (used := counts.get("used", 0) + counts.get("deduplicated", 0)) != load.events:
        raise ResultWrong(f"{measured.name}: the kernel took {used} of {load.events} records")
    emitted = counts.get("emitted", 0) / load.events
    return Rate(measured, load.events / min(seconds for seconds, _ in runs), emitted)


def _run(
    stage: kernel.Stage, batches: Sequence[pa.RecordBatch], batch: kernel.Batch
) -> tuple[float, dict[str, int]]:
    start = time.process_time()
    decided = [rows for rows in kernel.decide(stage, batches, batch) if rows.num_rows]
    seconds = time.process_time() - start
    counts = json.loads(decided[-1].column("counts")[0].as_py())
    return seconds, counts


def _shown(rate: Rate) -> dict[str, Any]:
    return {
        "kind": rate.measured.kind,
        "name": rate.measured.name,
        "records/s": f"{rate.per_second:,.0f}",
        "emitted per record": f"{rate.emitted:.2f}",
        "below the bound": "" if rate.per_second >= BOUND else f"{rate.per_second / BOUND:.2f}",
    }


def _as_json(rate: Rate) -> dict[str, Any]:
    name = {"kind": rate.measured.kind, "name": rate.measured.name}
    return {**name, "records_per_cpu_second": rate.per_second, "emitted_per_record": rate.emitted}


@click.command(help=__doc__)
@click.option("--events", default=300_000, show_default=True)
@click.option("--keys", default=100_000, show_default=True, help="Stages with timers get 1 % of them.")
@click.option("--repeat", default=1, show_default=True, help="Runs of each, of which the best one counts.")
@click.option("--only", multiple=True, help="Some of the names or kinds.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(events: int, keys: int, repeat: int, only: tuple[str, ...], json_wanted: bool) -> None:
    say = teller()
    pa.set_cpu_count(1)
    load, rates = Load(events, keys), []
    for measured in all_measured():
        if not only or measured.name in only or measured.kind in only:
            say(f"{measured.kind}: {measured.name}")
            rates.append(measure(measured, load, repeat))
    if json_wanted:
        show_json({"results": [_as_json(rate) for rate in rates]})
    else:
        show_table([_shown(rate) for rate in rates], f"Rates on one core, of {events:,} records")


if __name__ == "__main__":
    main()
