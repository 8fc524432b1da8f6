"""Checks of many emissions: seconds of a processor, and memory beyond that of the process before them.

    python -m benchmarks.quality --rows 400000 --rows 4000000

Each row is a family of expectations, or a promise of the pipeline that is built in. Each turn is a process of
its own, forked where the suite's library is imported; its figures are those after one small check. The rows
have a unique key, numbers with and without nulls, texts of few values, and times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import click
import numpy as np
import pyarrow as pa

from benchmarks.figures import show_json, show_table, teller
from tidegate import kernel
from tidegate.kernel.keys import key_hashes
from tidegate.quality import gate, neighbours, observations
from tidegate.quality.audit import Audit, AuditedRows, Origin
from tidegate.quality.facts import row_groups
from tidegate.quality.suite import ExpectationSpec, Severity, Suite
from tidegate.storage import DataFile, Store
from tidegate.storage.datafile import RowWriter

BATCH_ROWS = 65_536
SMALL = 1_000
COLUMNS = ("key", "timestamp", "quantity", "price", "region")
_QUANTITY = {"column": "quantity", "min_value": 0, "max_value": 1000}
_PRICE = {"column": "price", "min_value": 0, "max_value": 100}
_TENTHS = {"quantiles": [0.1, 0.9], "value_ranges": [[0, 100], [0, 100]]}
Expected = Sequence[tuple[str, dict[str, Any]]]
FAMILIES: dict[str, Expected] = {
    "number of rows": [("expect_table_row_count_to_be_between", {"min_value": 1})],
    "rows, all as expected": [
        ("expect_column_values_to_not_be_null", {"column": "key"}),
        ("expect_column_value_lengths_to_be_between", {"column": "key", "min_value": 2, "max_value": 20}),
        ("expect_column_values_to_match_regex", {"column": "key", "regex": "^k[0-9]+$"}),
        ("expect_column_values_to_be_between", _QUANTITY),
        ("expect_column_values_to_be_in_set", {"column": "region", "value_set": ["north", "south", "east"]}),
    ],
    "rows, half unexpected": [("expect_column_values_to_be_between", _QUANTITY | {"min_value": 500})],
    "pairs, some unexpected": [
        ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "quantity", "column_B": "price"})
    ],
    "unique": [("expect_column_values_to_be_unique", {"column": "key"})],
    "unique, three values": [("expect_column_values_to_be_unique", {"column": "region"})],
    "distinct values": [
        ("expect_column_distinct_values_to_equal_set", {"column": "region", "value_set": ["north", "south"]})
    ],
    "number of distinct values": [
        ("expect_column_unique_value_count_to_be_between", {"column": "key", "min_value": 1})
    ],
    "maximum": [("expect_column_max_to_be_between", {"column": "quantity", "max_value": 1000})],
    "sum": [("expect_column_sum_to_be_between", {"column": "price", "min_value": 0})],
    "mean": [("expect_column_mean_to_be_between", _PRICE)],
    "standard deviation": [("expect_column_stdev_to_be_between", _PRICE)],
    "median": [("expect_column_median_to_be_between", _PRICE)],
    "quantiles": [
        ("expect_column_quantile_values_to_be_between", {"column": "price", "quantile_ranges": _TENTHS})
    ],
    "order": [("expect_column_values_to_be_increasing", {"column": "timestamp"})],
    "z-scores": [
        (
            "expect_column_value_z_scores_to_be_less_than",
            {"column": "price", "threshold": 9, "double_sided": True},
        )
    ],
}
PROMISES: dict[str, Callable[[Iterator[pa.Table]], object]] = {
    "promise: keys": observations.keys_not_null,
    "promise: neighbours": partial(
        neighbours.no_equal_neighbours, emit=kernel.Change(("price", "region")), before=None
    ),
    "promise: finals": observations.one_final_per_entry,
}
_OF_PROMISE = {
    "promise: keys": observations.KEY_TEXT_AND_COLUMNS,
    "promise: neighbours": neighbours.COLUMNS,
    "promise: finals": observations.FINAL_COLUMNS,
}


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """An outbox with the columns of its value beside it, as suites see them; always the same."""
    dice = np.random.default_rng(7)
    for first in range(0, rows, BATCH_ROWS):
        number = min(BATCH_ROWS, rows - first)
        nulls = dice.random(number) < 0.01
        keys = pa.array([f"k{first + row}" for row in range(number)])
        columns = {
            "key": keys,
            "timestamp": pa.array(dice.integers(0, 2**40, number)),
            "quantity": pa.array(dice.integers(0, 1000, number), mask=nulls),
            "price": pa.array(dice.random(number) * 100, mask=nulls),
            "region": pa.array(dice.choice(["north", "south", "east"], number)),
        }
        value = pa.StructArray.from_arrays([columns["price"], columns["region"]], ["price", "region"])
        yield pa.record_batch(
            columns
            | {
                # the file's order need not be that of the hashes here: no promise is asked about a state
                "hash": pa.array(np.sort(key_hashes(keys).to_numpy())),
                "window_start": pa.nulls(number, pa.int64()),
                "window_end": pa.nulls(number, pa.int64()),
                "ordinal": pa.repeat(0, number),
                "reason": pa.repeat("changed", number),
                "key_columns": pa.StructArray.from_arrays([keys], ["id"]),
                "value": value,
            }
        )


def write_rows(store: Store, rows: int) -> DataFile:
    """A file with so many rows."""
    with RowWriter(store, f"o/{rows}.parquet", "outbox", "s") as writer:
        for batch in batches(rows):
            writer.write(batch)
    assert writer.file is not None
    return writer.file


def check(name: str, store: Store, file: DataFile) -> None:
    """Check a file by a row of the table."""
    if name in PROMISES:
        PROMISES[name](row_groups(store, (file,), _OF_PROMISE[name]))
        return
    specs = tuple(
        ExpectationSpec(number, type_, kwargs, Severity.WARNING)
        for number, (type_, kwargs) in enumerate(FAMILIES[name], start=1)
    )
    schema = pa.schema([field for field in next(batches(1)).schema if field.name in COLUMNS])
    columns = {column: Origin(column) for column in COLUMNS}
    rows = AuditedRows(store, (file,), columns, schema)
    verdict = gate.check(Audit(name, Suite(name, specs), rows))
    assert not any(result.error for result in verdict.expectations), verdict.summary


def measured(name: str, store: Store, small: DataFile, file: DataFile) -> tuple[float, float]:
    """Processor seconds, and MiB beyond those before."""
    check(name, store, small)
    before, began = _peak_mib(), process_time()
    check(name, store, file)
    return process_time() - began, _peak_mib() - before


def _peak_mib() -> float:
    """The most that this process has held; `getrusage` would give that of its parent, if that was more."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*FAMILIES, *PROMISES]), metavar="[NAME]...")
@click.option("--rows", "sizes", type=click.IntRange(1), multiple=True, default=(400_000, 4_000_000))
@click.option("--turns", default=3, show_default=True, help="The medians of so many turns are shown.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(names: tuple[str, ...], sizes: tuple[int, ...], turns: int, json_wanted: bool) -> None:
    """Measure checks of so many emissions."""
    shown, say = [], teller()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        small, *files = (_in_new_process(write_rows, store, rows) for rows in (SMALL, *sizes))
        for name in names or (*FAMILIES, *PROMISES):
            figures: dict[str, Any] = {"check": name}
            for file in files:
                results = [_in_new_process(measured, name, store, small, file) for _ in range(turns)]
                seconds, mib = map(median, zip(*results, strict=True))
                figures |= {f"{file.rows:,}: s": round(seconds, 2), f"{file.rows:,}: MiB": round(mib)}
            say(str(figures))
            shown.append(figures)
    if json_wanted:
        show_json({"checks": shown})
    else:
        show_table(shown, f"Checks, medians of {turns} turns")


def _in_new_process(function: Callable[..., Any], *arguments: object) -> Any:
    with ProcessPoolExecutor(1, get_context("fork")) as process:
        return process.submit(function, *arguments).result()


if __name__ == "__main__":
    main()
