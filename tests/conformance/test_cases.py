"""Every sample pipeline's case files, whole and cut: after each record, and in five random ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.cli.cases import differences
from tidegate.spec import load_cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = Path(__file__).resolve().parents[2] / "include" / "pipelines" / "cases"
FILES = sorted(CASES.rglob("*.yaml"))
KNOWN = [(path, number) for path in FILES for number in range(len(load_cases(path)))]


@pytest.mark.parametrize(("path", "number"), KNOWN, ids=[f"{path.stem}-{n}" for path, n in KNOWN])
def test_a_case_gives_what_it_says_however_it_is_cut(spark: SparkSession, path: Path, number: int) -> None:
    assert differences(spark, load_cases(path)[number], cuts=5, seed=1) == []
