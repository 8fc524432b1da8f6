"""A program with a session whose heap is small; prints what it found, as JSON. See `test_memory`."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate.engine import open_session
from tidegate.engine.batch import kept
from tidegate.engine.errors import translated
from tidegate.errors import SparkLost
from tidegate.spec import parse_case_pipeline

PIPELINE = parse_case_pipeline(
    {
        "pipeline": "p",
        "source": {"topics": ["t"], "format": "string"},
        "stages": [{"name": "out", "emit": {"on": "update"}}],
    },
    "test",
)


def wide(spark: SparkSession, mebibytes: int) -> DataFrame:
    """Two partitions of rows of 4 KiB."""
    text = F.randstr(4096, 1)  # nothing in it can be compressed
    return spark.range(0, mebibytes * 256, 1, 2).select(F.struct(text.alias("text")).alias("value"))


def lose(spark: SparkSession) -> str | None:
    """What a computation says whose JVM is killed while it keeps a frame."""
    gateway: Any = spark.sparkContext._gateway
    try:
        with ExitStack() as cached, translated(PIPELINE):
            frame = kept(wide(spark, 1), cached)
            os.kill(gateway.proc.pid, signal.SIGKILL)
            frame.count()
    except SparkLost as error:
        return str(error)
    return None


def main(jars: str) -> None:
    """Keep a frame larger than the heap; then lose Spark."""
    spark = open_session(Path(jars), "local[2]", "512m")
    runtime: Any = spark.sparkContext._jvm
    found: dict[str, Any] = {"heap": runtime.java.lang.Runtime.getRuntime().maxMemory()}
    with ExitStack() as cached:
        frame = kept(wide(spark, 900), cached)
        found["counts"] = [frame.count(), frame.where(F.length("value.text") == 4096).count()]
    print(json.dumps(found | {"lost": lose(spark)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
