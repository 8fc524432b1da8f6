"""`python -m tests.storage.spark_reader JARS QUERIES RESULTS [OPTIONS]`: Spark SQL without tidegate.

It reads Delta tables, or those of the catalogs in `OPTIONS`, a JSON file. `JARS` as Spark takes them;
`QUERIES` a JSON list of queries; `RESULTS` a file for their rows, pickled: a list of dicts for each query.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.spark.java import find_java, java_home

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
OPTIONS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def main(jars: str, queries: str, results: str, options: str | None = None) -> None:
    """Run all queries in one session."""
    os.environ["JAVA_HOME"] = str(java_home(find_java()))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    tables = DELTA if options is None else json.loads(Path(options).read_text())
    for name, value in {**OPTIONS, **tables}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = [
        [row.asDict(recursive=True) for row in spark.sql(query).collect()]
        for query in json.loads(Path(queries).read_text())
    ]
    Path(results).write_bytes(pickle.dumps(rows))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
