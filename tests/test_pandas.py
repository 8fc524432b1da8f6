"""pyarrow and PySpark without pandas, until somebody asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

BEGIN = "import sys; from tidegate.imports import keep_pandas_out; keep_pandas_out(); import pyarrow as pa;"


def output_of(program: str) -> list[str]:
    """Return the words that a program prints in a Python of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("pa.array([1]); print('pandas' in sys.modules)", "False"),
        ("print(type(pa.table({'n': [1]}).to_pandas()).__module__.split('.')[0])", "pandas"),
        # what pyarrow makes of missing values in a Series, it makes again once pandas was asked for
        (
            "s = pa.table({'n': [1.0, None]}).to_pandas()['n']; print(pa.array(s).null_count)",
            "1",
        ),
        ("import pandas as pd; print(pd.Series([1]).sum())", "1"),
    ],
    ids=["an array", "to_pandas", "a Series after it", "pandas itself"],
)
def test_pandas_is_imported_only_on_request(program: str, printed: str) -> None:
    assert output_of(BEGIN + program) == [printed]


@pytest.mark.parametrize("before", ["", "import pyarrow;"], ids=["pyarrow comes later", "pyarrow is there"])
def test_pandas_is_kept_out_without_pyarrow(before: str) -> None:
    program = (
        f"import sys; {before} from tidegate.imports import keep_pandas_out;"
        "there = 'pyarrow' in sys.modules;"
        "keep_pandas_out(); keep_pandas_out(); print(('pyarrow' in sys.modules) == there);"
        "import pyarrow as pa; pa.array([1]); print('pandas' in sys.modules)"
    )
    assert output_of(program) == ["True", "False"]


def test_pyspark_asks_for_pandas_without_importing_it() -> None:
    program = (
        "import sys; from tidegate.imports import keep_pandas_out; keep_pandas_out();"
        "from pyspark.sql.pandas.functions import pandas_udf; from pyspark.util import PythonEvalType;"
        "from pyspark.sql.types import StructType;"
        "from pyspark.testing.utils import have_pandas;"
        "pandas_udf(lambda rows: rows, StructType(), PythonEvalType.SQL_MAP_ARROW_ITER_UDF);"
        "print(have_pandas, 'pandas' in sys.modules)"
    )
    assert output_of(program) == ["True", "False"]


def test_spark_connect_imports_pandas_only_on_request() -> None:
    program = (
        "import sys; from tidegate.imports import keep_pandas_out; keep_pandas_out();"
        "from pyspark.sql.connect import session; from pyspark.sql.connect.client import core;"
        "print('pandas' in sys.modules);"
        "frame = session.pd.DataFrame({'n': [1]}); print(core.pd.DataFrame is type(frame));"
        "print(session.is_datetime64_dtype(frame['n'].astype('datetime64[ns]')))"
    )
    assert output_of(program) == ["False", "True", "True"]


def test_command_help_imports_no_pandas() -> None:
    program = (
        "import sys; from tidegate.cli import cli; cli.main(['state', '--help'], standalone_mode=False);"
        "import pyarrow as pa; pa.array([1]); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
