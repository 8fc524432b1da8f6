"""Statements of each kind, with the outputs that ksqlDB's documentation and code give for their inputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ksql.functional import FunctionalCase, FunctionalRun, cases_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SAMPLES = list(cases_of(Path(__file__).with_name("samples.json")))
FOLDER = os.environ.get("TIDEGATE_KSQL_TESTS", "")
"""A folder of ksqlDB's own functional tests, which are not free software."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: case.name)
def test_imported_statements_emit_what_ksqldb_does(spark: SparkSession, case: FunctionalCase) -> None:
    run = FunctionalRun(spark, case)
    remarked = [
        "EMIT FINAL" in statement or "PARTITION BY LCASE(" in statement for statement in case.statements
    ]
    assert [remark.imported for remark in run.imported.remarks] == [True] * sum(remarked)
    assert run.differences() == []


@pytest.mark.long
@pytest.mark.skipif(not FOLDER, reason="TIDEGATE_KSQL_TESTS names no folder")
def test_statements_of_the_folder_are_remarked_or_equal(spark: SparkSession) -> None:
    different = []
    for path in sorted(Path(FOLDER).glob("*.json")):
        for case in cases_of(path):
            run = FunctionalRun(spark, case)
            if not run.imported.remarks and run.differences():
                different.append(f"{case.file}: {case.name}")
    assert different == []
