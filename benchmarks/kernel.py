"""The kernel alone, on one thread: events per second of `tidegate.core.decide`, beside a loop in Python.

`python -m benchmarks.kernel --help`
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.events import Load, draw, key, timestamp_ms
from benchmarks.figures import show_json, show_table, spread, spread_text, teller
from benchmarks.naive import naive_decide
from benchmarks.programs import ResultWrong
from tidegate import core

BATCH_ROWS = 65_536
STAGES = {
    "change": core.Stage(core.Change(("isAvailable",))),
    "update": core.Stage(core.Update()),
}
_VALUE = pa.struct([("isAvailable", pa.bool_())])
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_INPUT = pa.struct(
    [("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER)), ("reason", pa.string())]
)
_ORDER = ("key", "kind", "updated_seq", "topic", "partition", "offset")


@dataclass(frozen=True)
class Compared:
    """Seconds of each repeat for one emit strategy."""

    emit: str
    records: int
    emitted: int
    kernel: tuple[float, ...]
    naive: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times faster the kernel is, pair by pair."""
        return [naive / kernel for kernel, naive in zip(self.kernel, self.naive, strict=True)]

    def per_second(self, seconds: Sequence[float]) -> list[float]:
        return [self.records / each for each in seconds]


def sorted_batches(load: Load) -> list[pa.RecordBatch]:
    """The load as Spark brings it to the kernel: by key and position, each key's state row first."""
    table = pa.concat_tables([_states(load), *_records(load)]).combine_chunks()
    table = table.sort_by([(name, "ascending") for name in _ORDER]).combine_chunks()
    return list(table.to_batches(max_chunksize=BATCH_ROWS))


def _records(load: Load) -> list[pa.Table]:
    keys = pa.array([key(product) for product in range(load.keys)])
    tables = []
    for begin, products, quantities in draw(load):
        number = pa.array(products, pa.int32())
        events = range(begin, begin + len(products))
        tables.append(
            _rows(
                core.RECORD,
                keys.take(number),
                pa.array([product % load.partitions for product in products], pa.int32()),
                pa.array(events, pa.int64()),
                pa.array(map(timestamp_ms, events), pa.int64()),
                _struct(pc.greater(pa.array(quantities), 0)),
            )
        )
    return tables


def _states(load: Load) -> pa.Table:
    """What an earlier batch remembered: every product was available."""
    products = range(load.keys)
    return _rows(
        core.STATE,
        pa.array([key(product) for product in products]),
        pa.array([product % load.partitions for product in products], pa.int32()),
        pa.repeat(-1, load.keys),
        pa.repeat(timestamp_ms(0), load.keys),
        _struct(pa.repeat(True, load.keys)),
    )


def _rows(
    kind: int,
    keys: pa.Array,
    partitions: pa.Array,
    offsets: pa.Array,
    timestamps: pa.Array,
    value: pa.StructArray,
) -> pa.Table:
    size = len(keys)
    columns = {
        "kind": pa.repeat(pa.scalar(kind, pa.int8()), size),
        "key": keys,
        "updated_seq": pa.repeat(pa.scalar(int(kind == core.STATE), pa.int64()), size),
        "topic": pa.repeat("stock", size),
        "partition": partitions,
        "offset": offsets,
        "timestamp": timestamps,
        "source": pa.nulls(size, pa.string()),
        "passes": pa.repeat(True, size),
        "value": value,
        "emitted": value if kind == core.STATE else pa.nulls(size, _VALUE),
        "input": pa.nulls(size, _INPUT),
    }
    return pa.table(columns)


def _struct(available: pa.BooleanArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([available], fields=list(_VALUE))


def _kernel(stage: core.Stage, batches: Sequence[pa.RecordBatch]) -> int:
    """Run the kernel over everything; gives the number of emissions."""
    for batch in core.decide(stage, batches):
        last = batch
    return int(json.loads(last.column("counts")[0].as_py())["emitted"])


def compare(load: Load, repeat: int, say: Callable[[str], None]) -> list[Compared]:
    """Kernel and loop in turns, on the same batches. Raises ResultWrong when they disagree."""
    say(f"preparing {load.events:,} events of {load.keys:,} keys")
    batches = sorted_batches(load)
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        return [_compare(emit, load.events, batches, repeat, say) for emit in STAGES]
    finally:
        pa.set_cpu_count(threads)


def _compare(
    emit: str, records: int, batches: Sequence[pa.RecordBatch], repeat: int, say: Callable[[str], None]
) -> Compared:
    kernel, naive, emitted = [], [], 0
    for number in range(1, repeat + 1):
        say(f"{emit}, pair {number} of {repeat}")
        emitted, seconds = _timed(partial(_kernel, STAGES[emit], batches))
        kernel.append(seconds)
        found, seconds = _timed(partial(naive_decide, batches, emit == "change"))
        naive.append(seconds)
        if found != emitted:
            raise ResultWrong(f"{emit}: the kernel emitted {emitted} records, the loop {found}")
    return Compared(emit, records, emitted, tuple(kernel), tuple(naive))


def _timed(work: Callable[[], int]) -> tuple[int, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def _shown(results: Sequence[Compared]) -> list[dict[str, Any]]:
    """The strategies side by side."""
    columns = {
        each.emit: {
            "records": f"{each.records:,}",
            "emitted": f"{each.emitted:,}",
            "kernel, events per second": spread_text(each.per_second(each.kernel), 0),
            "loop, events per second": spread_text(each.per_second(each.naive), 0),
            "kernel / loop": spread_text(each.ratios),
        }
        for each in results
    }
    names = columns[results[0].emit]
    return [{"": name, **{emit: column[name] for emit, column in columns.items()}} for name in names]


def _as_json(each: Compared) -> dict[str, Any]:
    return {
        "emit": each.emit,
        "records": each.records,
        "emitted": each.emitted,
        "kernel_events_per_second": spread(each.per_second(each.kernel)),
        "loop_events_per_second": spread(each.per_second(each.naive)),
        "ratio": spread(each.ratios),
    }


@click.command()
@click.option("--events", default=Load.events, show_default=True)
@click.option("--keys", default=Load.keys, show_default=True)
@click.option("--quantities", default=Load.quantities, show_default=True, help="One event in N is sold out.")
@click.option("--repeat", default=3, show_default=True, help="Pairs of runs per emit strategy.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(events: int, keys: int, quantities: int, repeat: int, json_wanted: bool) -> None:
    """Measure the kernel on one thread, beside a loop over the records in Python."""
    results = compare(Load(events, keys, quantities=quantities), repeat, teller())
    if json_wanted:
        show_json({"results": [_as_json(each) for each in results]})
    else:
        show_table(_shown(results), "The kernel on one core (min / median / max)")


if __name__ == "__main__":
    main()
