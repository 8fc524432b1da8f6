"""A suite of one expectation, and values that pass it, or do not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

POSITIVE, NEGATIVE = pa.table({"quantity": [1, 2]}), pa.table({"quantity": [1, -2]})


def write_suite(folder: Path) -> Path:
    """No quantity is negative."""
    file = folder / "suite.json"
    expected = {"column": "quantity", "min_value": 0}
    expectation = {"type": "expect_column_values_to_be_between", "kwargs": expected}
    file.write_text(json.dumps({"name": "quantities", "expectations": [expectation]}))
    return file
