"""Rows in files, and suites over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tidegate.quality.audit import Audit, AuditedRows, Origin, PagePlace
from tidegate.quality.suite import ExpectationSpec, Severity, Suite
from tidegate.storage.datafile import RowWriter
from tidegate.storage.store import Store

POSITIVE, NEGATIVE = pa.table({"quantity": [1, 2]}), pa.table({"quantity": [1, -2]})
NOT_NEGATIVE = ("expect_column_values_to_be_between", {"column": "quantity", "min_value": 0})
Expected = tuple[str, Mapping[str, Any]]


def suite_of(*expected: Expected, severity: Severity = Severity.CRITICAL, name: str = "quantities") -> Suite:
    specs = (
        ExpectationSpec(at, type_, kwargs, severity) for at, (type_, kwargs) in enumerate(expected, start=1)
    )
    return Suite(name, tuple(specs))


def rows_of(folder: Path, table: pa.Table, group_rows: int = 1000) -> AuditedRows:
    """A table in a file of row groups of so many rows."""
    store = Store(str(folder / "lake"))
    with RowWriter(store, f"o/{uuid4().hex}.parquet", "outbox", "s") as file:
        for batch in table.to_batches(max_chunksize=group_rows):
            file.write(batch)
    files = () if file.file is None else (file.file,)
    return AuditedRows(store, files, {name: Origin(name) for name in table.column_names}, table.schema)


def place_of(folder: Path, seq: int = 7, try_number: int = 1, day: date = date(2026, 1, 31)) -> PagePlace:
    return PagePlace(str(folder / "docs"), "levels", 1, day, seq, 1, try_number)


def audit_of(folder: Path, table: pa.Table, *expected: Expected, **options: Any) -> Audit:
    """Return the audit of a table by a suite, which is NOT_NEGATIVE unless others are given."""
    place = options.pop("place", place_of(folder))
    suite = suite_of(*(expected or (NOT_NEGATIVE,)), **options)
    return Audit(f"{suite.name} on the values of levels", suite, rows_of(folder, table), place=place)


def findings(verdict: Any) -> Sequence[tuple[str, bool]]:
    return [(result.title, result.passed) for result in verdict.expectations]
