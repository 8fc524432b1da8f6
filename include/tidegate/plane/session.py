"""How many tasks a session can run at once, as far as its settings tell."""

from __future__ import annotations

import os
import re

from pyspark.sql import SparkSession

_CORES_UNKNOWN = 8

SETTINGS = {
    # Partition numbers are chosen per batch; adaptive execution would plan small shuffles twice.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # With a bound Spark adds up the size of a batch after each row, which is quadratic in its rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""What a batch sets in whatever session it is given."""


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
