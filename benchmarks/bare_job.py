"""What Spark takes when there is nothing to do: a local session, and rows through `mapInArrow`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> None:
    spark = SparkSession.builder.master(os.environ["TIDEGATE_SPARK_MASTER"]).getOrCreate()
    rows = spark.range(int(sys.argv[1])).mapInArrow(_same, "id bigint").collect()
    print(len(rows))
    spark.stop()


if __name__ == "__main__":
    main()
