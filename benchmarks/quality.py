"""An audit of many emissions: seconds, and memory beyond that of the process before it.

    python -m benchmarks.quality --rows 10000000

The suite has twelve expectations that suites have most; the rows a unique key, numbers with and without
nulls, texts of few values, and times. The memory is the largest that the process had in RAM (`ru_maxrss`),
without what it had when the suite's library was imported and one small audit was done.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.quality import gate
from tidegate.quality.audit import Audit, AuditedRows, Origin
from tidegate.quality.suite import ExpectationSpec, Severity, Suite
from tidegate.storage.datafile import RowWriter
from tidegate.storage.store import Store

BATCH_ROWS = 65_536
SUITE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("expect_table_row_count_to_be_between", {"min_value": 1}),
    ("expect_column_values_to_not_be_null", {"column": "key"}),
    ("expect_column_values_to_be_unique", {"column": "key"}),
    ("expect_column_value_lengths_to_be_between", {"column": "key", "min_value": 5, "max_value": 20}),
    ("expect_column_values_to_match_regex", {"column": "key", "regex": "^k[0-9]+$"}),
    ("expect_column_values_to_be_between", {"column": "quantity", "min_value": 0, "max_value": 1000}),
    ("expect_column_values_to_be_between", {"column": "price", "min_value": 0, "mostly": 0.99}),
    ("expect_column_values_to_be_in_set", {"column": "region", "value_set": ["north", "south", "east"]}),
    ("expect_column_distinct_values_to_equal_set", {"column": "region", "value_set": ["north", "south"]}),
    ("expect_column_max_to_be_between", {"column": "quantity", "max_value": 1000}),
    ("expect_column_sum_to_be_between", {"column": "price", "min_value": 0}),
    ("expect_column_mean_to_be_between", {"column": "price", "min_value": 0, "max_value": 100}),
)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Always the same."""
    dice = np.random.default_rng(7)
    for first in range(0, rows, BATCH_ROWS):
        number = min(BATCH_ROWS, rows - first)
        nulls = dice.random(number) < 0.01
        yield pa.record_batch(
            {
                "key": pa.array([f"k{first + row}" for row in range(number)]),
                "timestamp": pa.array(dice.integers(0, 2**40, number)),
                "quantity": pa.array(dice.integers(0, 1000, number), mask=nulls),
                "price": pa.array(dice.random(number) * 100, mask=nulls),
                "region": pa.array(dice.choice(["north", "south", "east"], number)),
            }
        )


def audit_of(folder: Path, rows: int) -> Audit:
    """The suite over so many rows in a file."""
    store = Store(str(folder))
    schema = next(batches(1)).schema
    with RowWriter(store, f"o/{rows}.parquet", "outbox", "s") as file:
        for batch in batches(rows):
            file.write(batch)
    assert file.file is not None
    specs = tuple(
        ExpectationSpec(number, type_, kwargs, Severity.WARNING)
        for number, (type_, kwargs) in enumerate(SUITE, start=1)
    )
    columns = {name: Origin(name) for name in schema.names}
    return Audit("most used", Suite("most_used", specs), AuditedRows(store, (file.file,), columns, schema))


def peak_bytes() -> int:
    """The largest that this process had in RAM so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(1, get_context("spawn")) as other:
        folder = Path(temporary)
        gate.check(audit_of(folder, 1000))
        audit = other.submit(audit_of, folder, options.rows).result()
        other.shutdown()
        before, began = peak_bytes(), perf_counter()
        verdict = gate.check(audit)
        seconds = perf_counter() - began
        figures = {
            "rows": options.rows,
            "seconds": round(seconds, 1),
            "MiB before": round(before / 2**20),
            "MiB more": round((peak_bytes() - before) / 2**20),
            "expectations": [
                f"{result.title}: {result.finding}, {result.note}" for result in verdict.expectations
            ],
        }
    json.dump(figures, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
