"""A program with a session whose heap is small; prints what it found, as JSON. See `test_memory`."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from pyspark.sql import SparkSession

from tidegate.errors import SparkLost
from tidegate.spark.errors import translated
from tidegate.spark.session import open_session
from tidegate.yaml.load import parse_case_pipeline

PIPELINE = parse_case_pipeline(
    {
        "pipeline": "p",
        "source": {"topics": ["t"], "format": "string"},
        "stages": [{"name": "out", "emit": {"on": "update"}}],
    },
    "test",
)


def lose(spark: SparkSession) -> str | None:
    """Kill the JVM of a computation, and return the message of its error."""
    gateway: Any = spark.sparkContext._gateway
    try:
        with translated(PIPELINE):
            frame = spark.range(10)
            os.kill(gateway.proc.pid, signal.SIGKILL)
            frame.count()
    except SparkLost as error:
        return str(error)
    return None


def main() -> None:
    """Look at the heap; then lose Spark."""
    """Look at the heap; then lose Spark."""
    # on so many cores the JVM chooses its collector: the serial one does not count all of its heap
    spark = open_session("local[8]", "512m")
    runtime: Any = spark.sparkContext._jvm
    heap = runtime.java.lang.Runtime.getRuntime().maxMemory()
    print(json.dumps({"heap": heap, "lost": lose(spark)}))


if __name__ == "__main__":
    main()
