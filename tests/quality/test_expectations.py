"""What a suite seldom needs is imported when it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.quality.suite_for_tests import audit_of

pytestmark = pytest.mark.process

SELDOM = "altair.vegalite", "scipy.stats._stats_py"


def imported_by(statements: str) -> set[str]:
    """Return the seldom needed modules that a new process has executed after these statements."""
    asked = f"import sys\n{statements}\nprint(*(set({SELDOM}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_charts_and_statistics_are_not_imported() -> None:
    assert imported_by("import great_expectations") == set(SELDOM)
    assert imported_by("import tidegate.quality.gate") == set()


def test_expectation_that_needs_charts_imports_them(tmp_path: Path) -> None:
    from tidegate.quality.gate import check

    partition = {"values": ["a", "b"], "weights": [0.5, 0.5]}
    expected = {"column": "name", "partition_object": partition, "threshold": 0.1}
    divergence = ("expect_column_kl_divergence_to_be_less_than", expected)
    even, uneven = pa.table({"name": ["a", "b"]}), pa.table({"name": ["a", "a", "a", "b"]})
    assert check(audit_of(tmp_path, even, divergence)).passed
    assert not check(audit_of(tmp_path, uneven, divergence)).passed
