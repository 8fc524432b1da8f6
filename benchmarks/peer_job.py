"""The peer: what one would write by hand to get the changes of a Kafka range, without any guarantee.

No state from one run to the next, no publication, no exactly-once, no quarantine, no checks.
`python -m benchmarks.peer_job CONF STARTS ENDS TABLE`, the first three JSON; prints its seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

_SCHEMA = "storeId string, id bigint, quantity int"
_ROWS_PER_PARTITION = 500_000


def open_session(conf: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("peer")
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def changes(records: DataFrame) -> DataFrame:
    """The records whose availability is not that of the product's record before."""
    stock = records.select(
        F.from_json(F.col("value").cast("string"), _SCHEMA).alias("stock"),
        "partition",
        "offset",
        "timestamp",
    ).select("stock.*", "partition", "offset", "timestamp")
    of_product = Window.partitionBy("storeId", "id").orderBy("partition", "offset")
    available = stock.select(
        "storeId", "id", (F.col("quantity") > 0).alias("isAvailable"), "partition", "offset", "timestamp"
    )
    before = available.withColumn("before", F.lag("isAvailable").over(of_product))
    return before.where(F.col("before").isNull() | (F.col("before") != F.col("isAvailable"))).drop("before")


def main(conf: str, starts: str, ends: str, table: str) -> None:
    began = time.perf_counter()
    settings = json.loads(conf)
    servers = settings.pop("servers")
    spark = open_session(settings)
    ready = time.perf_counter()
    span = sum(sum(of.values()) for of in json.loads(ends).values())
    span -= sum(sum(of.values()) for of in json.loads(starts).values())
    # 200, Spark's default, would only slow it down
    partitions = max(spark.sparkContext.defaultParallelism, span // _ROWS_PER_PARTITION)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", next(iter(json.loads(starts))))
        .option("startingOffsets", starts)
        .option("endingOffsets", ends)
        .load()
    )
    changes(records).write.format("delta").mode("append").save(table)
    written = time.perf_counter()
    spark.stop()
    print(json.dumps({"session": ready - began, "job": written - ready}))


if __name__ == "__main__":
    main(*sys.argv[1:])
