"""The Spark session: the same settings for spark-submit, `tidegate run` and the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.errors import SetupFailed

# A batch is small and bounded; rows travel to the kernel in Arrow batches of this many.
_ARROW_BATCH_ROWS = 65_536

_CONF = {
    "spark.sql.session.timeZone": "UTC",
    # ${env:…} in an expression would read the driver's environment
    "spark.sql.variable.substitute": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_BATCH_ROWS),
    # Partition numbers are chosen per batch; adaptive execution would re-plan each of its small jobs.
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}


def open_session(jars: Path, master: str | None = None, app_name: str = "tidegate") -> SparkSession:
    """A session with Delta and Kafka. `master` None: spark-submit has set it, and the jars, already.

    Raises SetupFailed when Spark's extra jars are missing.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    if master is not None:
        builder = builder.master(master).config("spark.jars", _jar_list(jars))
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.driver.host", "127.0.0.1"
        )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _jar_list(jars: Path) -> str:
    found = sorted(jars.glob("*.jar"))
    if not found:
        raise SetupFailed(
            f"Spark's Kafka and Delta jars are not in {jars}", "Run `make setup`, or set TIDEGATE_JARS."
        )
    return ",".join(map(str, found))
