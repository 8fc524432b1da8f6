"""The Spark session of a batch: opened here, or given by spark-submit or whoever keeps one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidegate.errors import SetupFailed
from tidegate.local.class_archive import archive_options
from tidegate.local.java import find_java, java_home

_CORES_UNKNOWN = 8

SETTINGS = {
    # Partition numbers are chosen per batch; adaptive execution would plan small shuffles twice.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # With a bound Spark adds up the size of a batch after each row, which is quadratic in its rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""What a batch sets in whatever session it is given."""

_OF_NEW_SESSIONS = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}


def open_session(
    master: str | None = None, memory: str | None = None, java_options: Sequence[str] | None = None
) -> SparkSession:
    """A session. `master` None: spark-submit has set it, and all else, already.

    `memory` is the heap of the driver, such as `2g`; None: Spark's default. `java_options` are the JVM's;
    None: the class archive, where there is one. Raises SetupFailed when Java is missing or does not start.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    own = _own_process(master, memory, java_options) if master else {"spark.log.level": "ERROR"}
    for name, value in (_OF_NEW_SESSIONS | own).items():
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
    return session


def _own_process(master: str, memory: str | None, java_options: Sequence[str] | None) -> dict[str, str]:
    """What spark-submit would say, when there is none."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java_home(java))
    # Quiet from the start: what Spark says goes over the user's screen.
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    options = " ".join([quiet, *(archive_options(java) if java_options is None else java_options)])
    conf = {"spark.master": master, "spark.app.name": "tidegate", "spark.driver.extraJavaOptions": options}
    if memory is not None:
        conf["spark.driver.memory"] = memory
    if master.startswith("local"):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return conf


def prepare(spark: SparkSession) -> None:
    """Set what makes a batch fast in a session, whoever made it."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)


def cores_of(spark: SparkSession) -> int:
    """How many tasks can run at once; 8 where a cluster's settings do not tell."""
    for name in ("spark.default.parallelism", "spark.cores.max"):
        if number := spark.conf.get(name, None):
            return int(number)
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?", spark.conf.get("spark.master", None) or "")
    if local is None:
        return _CORES_UNKNOWN
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
