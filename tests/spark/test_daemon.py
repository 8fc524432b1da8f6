"""Spark's Python workers: forks of a daemon that has imported what they need, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest

from tidegate.spark.daemon import prefer_installed_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.process

INSTALLED = Path(pyspark.__file__).parent


def test_workers_import_no_database_client_or_grammar() -> None:
    program = (
        "import sys; from tidegate.spark import decoding, kernel_task, source, written;"
        "print(*{'sqlalchemy', 'kafka', 'tidegate.model', 'pydantic', 'pandas'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("home", "is_preferred"), [(INSTALLED, True), (INSTALLED.parent, False), (Path("/no/spark"), False)]
)
def test_installed_pyspark_replaces_only_its_own_version(
    monkeypatch: pytest.MonkeyPatch, home: Path, is_preferred: bool
) -> None:
    zipped = str(home / "python" / "lib" / "pyspark.zip")
    monkeypatch.setattr(sys, "path", [zipped, *sys.path])
    monkeypatch.setitem(sys.path_importer_cache, zipped, None)
    monkeypatch.setenv("SPARK_HOME", str(home))
    prefer_installed_pyspark()
    assert (zipped not in sys.path) == is_preferred
    assert (zipped not in sys.path_importer_cache) == is_preferred


def test_a_zip_file_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/their/modules.zip", *sys.path])
    monkeypatch.setenv("SPARK_HOME", str(INSTALLED))
    prefer_installed_pyspark()
    assert "/their/modules.zip" in sys.path


@pytest.mark.spark
def test_no_zip_file_is_read_before_a_task(spark: SparkSession) -> None:
    def looked_into(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            zips = [path for path in sys.path_importer_cache if "pyspark" in path and not Path(path).is_dir()]
            yield pa.RecordBatch.from_pylist(
                [{"path": path} for path in zips], pa.schema([("path", pa.string())])
            )

    read = spark.range(1).mapInArrow(looked_into, "path string").collect()
    assert [row["path"] for row in read] == []


@pytest.mark.spark
def test_a_worker_has_them_before_its_first_task(spark: SparkSession) -> None:
    def seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark as of_worker

        for _ in batches:
            yield pa.RecordBatch.from_pylist(
                [{"pyspark": of_worker.__file__, "imported": "tidegate.spark.kernel_task" in sys.modules}]
            )

    (row,) = spark.range(1).coalesce(1).mapInArrow(seen, "pyspark string, imported boolean").collect()
    assert Path(row.pyspark).parent == INSTALLED
    assert row.imported
