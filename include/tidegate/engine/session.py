"""The Spark session: the same settings for spark-submit, `tidegate run` and the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidegate.engine.semantics import pin_semantics
from tidegate.errors import SetupFailed
from tidegate.local.java import find_java, java_home

# Rows travel to the kernel in Arrow batches of this many. After each row Spark sums up the size of the batch
# so far, to bound its bytes; that takes longer the more rows it has, and is most of the time from 10,000 on.
_ARROW_BATCH_ROWS = 2_048

_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_BATCH_ROWS),
    # Frames are kept in pieces of 4 MB. Java's serializer holds on to what it has written until it is reset;
    # Spark does that every 100 objects, so they would come to 400 MB of heap on each core.
    "spark.serializer.objectStreamReset": "1",
    # Partition numbers are chosen per batch; adaptive execution would re-plan each of its small jobs.
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}


def open_session(jars: Path, master: str | None = None, memory: str | None = None) -> SparkSession:
    """A session with Delta and Kafka. `master` None: spark-submit has set it, and all else, already.

    `memory` is the heap of the driver, such as `2g`; None: Spark's default. Raises SetupFailed when Java or
    Spark's extra jars are missing, or Java does not start.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in (_CONF | (_own_process(jars, master, memory) if master else {})).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SetupFailed(
            "Java did not start; what it said stands above",
            "Set TIDEGATE_SPARK_MEMORY to no more than this machine can give, or correct JAVA_HOME.",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    pin_semantics(session)
    return session


def _own_process(jars: Path, master: str, memory: str | None) -> dict[str, str]:
    """What spark-submit would say, when there is none."""
    os.environ["JAVA_HOME"] = str(java_home(find_java()))
    # Quiet from the start: what Spark says before the log level is set goes over the user's screen.
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    conf = {
        "spark.master": master,
        "spark.app.name": "tidegate",
        "spark.jars": _jar_list(jars),
        "spark.driver.extraJavaOptions": quiet,
    }
    if memory is not None:
        conf["spark.driver.memory"] = memory
    if master.startswith("local"):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return conf


def _jar_list(jars: Path) -> str:
    found = sorted(jars.glob("*.jar"))
    if not found:
        raise SetupFailed(
            f"Spark's Kafka and Delta jars are not in {jars}", "Run `make setup`, or set TIDEGATE_JARS."
        )
    return ",".join(map(str, found))
