"""What a suite seldom needs is imported when it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.quality.suite_for_tests import audit_of

pytestmark = pytest.mark.process

DATA_SOURCES = "great_expectations.datasource.fluent.pandas_datasource"
OTHER_TYPE = "great_expectations.expectations.core.expect_column_max_to_be_between"
SELDOM = "altair.vegalite", "scipy.stats._stats_py", "jsonschema.validators", DATA_SOURCES, OTHER_TYPE


def imported_by(statements: str) -> set[str]:
    """Return the seldom needed modules that a new process has executed after these statements."""
    asked = f"import sys\n{statements}\nprint(*(set({SELDOM}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_an_audit_seldom_needs_is_not_imported() -> None:
    assert imported_by("import great_expectations") == set(SELDOM)
    assert imported_by("import tidegate.quality.gate") == set()


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("statement", "imported"),
    [
        ("gx.expectations.ExpectColumnMaxToBeBetween", OTHER_TYPE),
        ("gx.expectations.core.ExpectColumnMaxToBeBetween", OTHER_TYPE),
        ("gx.expectations.registry.get_expectation_impl('expect_column_max_to_be_between')", OTHER_TYPE),
        ("gx.get_context(mode='ephemeral').data_sources.add_pandas('rows')", DATA_SOURCES),
        ("from great_expectations.datasource.fluent import PandasDatasource", DATA_SOURCES),
    ],
    ids=["attribute", "attribute of core", "registry", "context", "data source"],
)
def test_what_code_of_users_asks_for_is_imported(statement: str, imported: str) -> None:
    before = "import tidegate.quality.gate, great_expectations as gx"
    assert imported in imported_by(f"{before}\n{statement}")


def test_expectation_on_demand_imports_no_other_engine() -> None:
    asked = (
        "import sys; from tidegate.quality.expectations import gx; registry = gx.expectations.registry;"
        "gx.expectations.ExpectColumnValuesToBeInSet;"
        "registry.get_expectation_impl('expect_column_max_to_be_between');"
        "print({'sqlalchemy', 'pyspark'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_unknown_names_are_refused_as_always() -> None:
    gx = pytest.importorskip("tidegate.quality.expectations").gx
    with pytest.raises(AttributeError, match="ExpectNothing"):
        _ = gx.expectations.ExpectNothing
    with pytest.raises(gx.exceptions.ExpectationNotFoundError):
        gx.expectations.registry.get_expectation_impl("expect_nothing")


def test_expectation_that_needs_charts_imports_them(tmp_path: Path) -> None:
    from tidegate.quality.gate import check

    partition = {"values": ["a", "b"], "weights": [0.5, 0.5]}
    expected = {"column": "name", "partition_object": partition, "threshold": 0.1}
    divergence = ("expect_column_kl_divergence_to_be_less_than", expected)
    even, uneven = pa.table({"name": ["a", "b"]}), pa.table({"name": ["a", "a", "a", "b"]})
    assert check(audit_of(tmp_path, even, divergence)).passed
    assert not check(audit_of(tmp_path, uneven, divergence)).passed
