"""What both programs have in common: the session, the stream of records, and a sink that is exactly once.

Spark's own Kafka sink is at-least-once: a micro-batch that is repeated after a crash is sent again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 as everybody names it

_EVENT = "storeId string, id bigint, quantity int"
_WAIT_S = 60.0
OUTPUT = "key string, value string, timestamp long"
"""A message of the sink; its timestamp in epoch milliseconds."""


class Arguments(NamedTuple):
    """`folder` is that of the application: checkpoint, and tables if it has some."""

    servers: str
    source: str
    sink: str
    folder: str
    jars: str


def open_session(arguments: Arguments, options: dict[str, str]) -> SparkSession:
    """A local session with as many shuffle partitions as suit few cores."""
    builder = SparkSession.builder.master(os.environ["TIDEGATE_SPARK_MASTER"])
    common = {
        "spark.jars": arguments.jars,
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "4",  # the default, 200, is many times slower here
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    for name, value in (common | options).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read_events(spark: SparkSession, arguments: Arguments) -> DataFrame:
    """The stream of records: key, storeId, id, isAvailable, timestamp (epoch ms), position in the topic."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    event = F.from_json(F.col("value").cast("string"), _EVENT).alias("event")
    timestamp = F.unix_millis("timestamp").alias("timestamp")
    return records.select(F.col("key").cast("string"), event, timestamp, "partition", "offset").select(
        "key",
        "event.storeId",
        "event.id",
        (F.col("event.quantity") > 0).alias("isAvailable"),
        "timestamp",
        "partition",
        "offset",
    )


def run(stream: DataFrame, arguments: Arguments, on_batch: Callable[[DataFrame, int], None]) -> int:
    """Process all that is there, and end. Returns how many records that were."""
    query = (
        stream.writeStream.foreachBatch(on_batch)
        .outputMode("update")
        .option("checkpointLocation", f"{arguments.folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def send_once(arguments: Arguments, batch_id: int, messages: pa.Table) -> None:
    """Send a micro-batch in one transaction, unless an earlier try has done so.

    The number of sent messages is part of the same transaction, as the offset of a group without consumers.
    `init_transactions` ends what an earlier try has left open, hence it comes before the look.
    """
    name = f"spark-{arguments.sink}"
    settings = {"bootstrap.servers": arguments.servers}
    producer = Producer(
        {**settings, "transactional.id": name, "transaction.timeout.ms": 600_000, "linger.ms": 50}
        | {"queue.buffering.max.messages": 10_000_000, "compression.type": "lz4"}
    )
    producer.init_transactions(_WAIT_S)
    consumer = Consumer({**settings, "group.id": name})
    (progress,) = consumer.committed([TopicPartition(arguments.sink, 0)], _WAIT_S)
    if progress.offset <= batch_id:
        producer.begin_transaction()
        for key, value, timestamp in zip(*(column.to_pylist() for column in messages.columns), strict=True):
            producer.produce(arguments.sink, value, key, timestamp=timestamp)
        sent = [TopicPartition(arguments.sink, 0, batch_id + 1)]
        producer.send_offsets_to_transaction(sent, consumer.consumer_group_metadata(), _WAIT_S)
        producer.commit_transaction(_WAIT_S * 10)
    consumer.close()
