"""`foreachBatch` and MERGE: the last availability of each product is a Delta table, joined with what is new.

A micro-batch that is repeated after a crash must not be compared with the state that it has made itself. So
its changes are kept first, in a table of their own, once; what follows goes by these, and can be repeated.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 as everybody names it

from benchmarks.structured_streaming.application import Arguments, open_session, read_events, run, send_once

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
_STATE = "(key string, isAvailable boolean) USING delta"
_CHANGES = (
    "(batch bigint, key string, value string, timestamp bigint, offset bigint, isAvailable boolean) "
    "USING delta PARTITIONED BY (batch)"
)


class OnChange:
    """A function for each micro-batch that merges it into the state and sends the changes."""

    def __init__(self, spark: SparkSession, arguments: Arguments) -> None:
        self._spark = spark
        self._arguments = arguments
        self._state, self._changes = f"{arguments.folder}/state", f"{arguments.folder}/changes"
        for path, layout in ((self._state, _STATE), (self._changes, _CHANGES)):
            spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` {layout}")

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self._keep_changes(batch, batch_id)
        self._merge(batch_id)
        changes = self._saved_changes(batch_id).orderBy("offset").select("key", "value", "timestamp")
        send_once(self._arguments, batch_id, changes.toArrow())

    def _keep_changes(self, batch: DataFrame, batch_id: int) -> None:
        """Writes nothing where an earlier try has."""
        state = self._spark.read.format("delta").load(self._state).withColumnRenamed("isAvailable", "last")
        before = F.lag("isAvailable").over(Window.partitionBy("key").orderBy("offset"))
        changes = (
            batch.join(state, "key", "left")
            .withColumn("before", F.coalesce(before, "last"))
            .where(~F.col("isAvailable").eqNullSafe(F.col("before")))
            .select(
                F.lit(batch_id).cast("bigint").alias("batch"),
                "key",
                F.to_json(F.struct("storeId", "id", "isAvailable")).alias("value"),
                "timestamp",
                "offset",
                "isAvailable",
            )
        )
        once = {"txnAppId": "availability", "txnVersion": str(batch_id)}
        changes.write.format("delta").mode("append").options(**once).save(self._changes)

    def _merge(self, batch_id: int) -> None:
        last = (
            self._saved_changes(batch_id)
            .groupBy("key")
            .agg(F.max_by("isAvailable", "offset").alias("isAvailable"))
        )
        last.createOrReplaceTempView("last")
        last.sparkSession.sql(
            f"MERGE INTO delta.`{self._state}` AS state USING last ON state.key = last.key "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def _saved_changes(self, batch_id: int) -> DataFrame:
        return self._spark.read.format("delta").load(self._changes).where(F.col("batch") == batch_id)


def main() -> None:
    arguments = Arguments(*sys.argv[1:])
    spark = open_session(arguments, _DELTA)
    print(run(read_events(spark, arguments), arguments, OnChange(spark, arguments)))


if __name__ == "__main__":
    main()
