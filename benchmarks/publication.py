"""One outbox into Kafka, exactly once, by one process and by two Spark tasks, beside the same client without
transactions and progress.

`python -m benchmarks.publication --help`
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.figures import show_json, show_table, spread, spread_text, teller
from benchmarks.outputs import messages
from benchmarks.place import create_topics, temporary_home
from benchmarks.programs import ResultWrong
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.messages import message_columns, messages_of
from tidegate.kafka.producer import BATCH_BYTES
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher
from tidegate.kafka.shard import SendShards
from tidegate.kernel.keys import key_hashes
from tidegate.ledger import Plan, Stream
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.kafka.messages import topic_messages
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.sinks.outbox import Outbox
from tidegate.spark.batch import send_shards
from tidegate.spark.session import OwnSession
from tidegate.storage import Store
from tidegate.storage.datafile import ROW_GROUP_ROWS, RowWriter
from tidegate.yaml.load import parse_pipeline
from tidegate_dev.broker import KafkaBroker

OURS, WITH_HEADERS, PEER = "tidegate", "tidegate, `headers: true`", "plain"
IN_SHARDS = "tidegate, by two Spark tasks"
_PER_KEY = 4
_SHARDS = 2
_PIPELINE = """\
pipeline: published
source: {topics: [stock], format: json, columns: "id bigint, n int", key: [id]}
stages:
  - {name: out, select: {n: n}, reduce: latest, emit: {on: update}}
sinks:
  - {kind: kafka, topic: out}
"""


@dataclass(frozen=True)
class Run:
    """One way through the whole outbox."""

    program: str
    repeat: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """The runs, in the order in which they were made."""

    records: int
    runs: tuple[Run, ...]

    def per_second(self, program: str) -> list[float]:
        return [self.records / run.seconds for run in self.runs if run.program == program]

    def ratios(self, program: str) -> list[float]:
        """Records per second, by those of the peer in the same round."""
        pairs = zip(self.per_second(program), self.per_second(PEER), strict=True)
        return [ours / theirs for ours, theirs in pairs]


def measure(
    records: int,
    partitions: int,
    repeat: int,
    say: Callable[[str], None],
    spark: SparkSession | None = None,
) -> Result:
    """Publish the same outbox in turns, each time into a topic of its own. Raises ResultWrong."""
    runs: list[Run] = []
    with temporary_home() as home, KafkaBroker(home) as broker:
        outbox = outbox_of(home, records, _SHARDS)
        config = KafkaConfig.parse(broker.bootstrap_servers)
        with KafkaLog(config) as log:
            log.ensure_progress_topic()
        programs = dict(_PROGRAMS)
        if spark is not None:
            programs[IN_SHARDS] = partial(in_shards, partial(send_shards, spark, pipeline()), _SHARDS)
        for number in range(1, repeat + 1):
            for place, (program, publish) in enumerate(programs.items()):
                say(f"{program}, round {number} of {repeat}")
                sink = sink_of(config, f"out-{place}-{number}", partitions, program == WITH_HEADERS)
                seconds = publish(config, sink, outbox)
                runs.append(Run(program, number, seconds))
                require_all(config, sink, outbox)
    return Result(records, tuple(runs))


def outbox_of(home: Path, records: int, number: int) -> Outbox:
    """Return an outbox as `compute` writes it, in `number` files: ordered by the keys' hashes, four values of
    about 10 bytes for each key."""
    numbers = np.arange(records)
    keys = pa.array([f"{value // _PER_KEY:08}" for value in range(records)])
    hashes = key_hashes(keys)
    numbers = numbers[np.argsort(hashes, kind="stable")]
    columns = {
        "hash": hashes.take(pa.array(numbers)),
        "key": keys.take(pa.array(numbers)),
        "ordinal": numbers,
        "value": pa.StructArray.from_arrays([pa.array(numbers % _PER_KEY)], ["n"]),
        "key_columns": pa.StructArray.from_arrays([pa.array(numbers // _PER_KEY)], ["id"]),
        "payload": [f'{{"n": {value % _PER_KEY}}}' for value in numbers],
        "timestamp": numbers,
        "reason": pa.repeat("changed", records),
        "source": [f"stock/0/{value}" for value in numbers],
        "window_start": pa.nulls(records, pa.int64()),
        "window_end": pa.nulls(records, pa.int64()),
    }
    store, owner = Store(str(home / "lake")), pipeline()
    stage = owner.stages[0]
    table, files = pa.table(columns), []
    # A file for each task of the computation; the keys of a file are in no other.
    ends = [records * part // number // _PER_KEY * _PER_KEY for part in range(number)] + [records]
    for part, (start, end) in enumerate(pairwise(ends)):
        with RowWriter(store, f"outbox-{part}.parquet", "outbox", stage.name) as writer:
            for rows in table.slice(start, end - start).to_batches(max_chunksize=ROW_GROUP_ROWS):
                writer.write(rows)
        assert writer.file is not None, "an outbox has rows"
        files.append(writer.file)
    plan = Plan(Stream("published", 1), 1, "benchmark", 0, 0, (), {}, owner.text, owner.hash)
    return Outbox(plan, stage, "measured", store, tuple(files))


def pipeline() -> Pipeline:
    """Return the pipeline to which the outbox belongs."""
    return parse_pipeline(_PIPELINE, "published.yaml")


def warm_up(spark: SparkSession, workers: int) -> None:
    """Start Python workers, which a batch has since it was computed."""
    spark.range(0, workers, numPartitions=workers).mapInArrow(lambda rows: rows, "id long").collect()


def sink_of(config: KafkaConfig, topic: str, partitions: int, headers: bool = False) -> KafkaSink:
    """Return a Kafka sink of a new topic."""
    create_topics(config.servers, partitions, topic)
    return KafkaSink(kind="kafka", topic=topic, headers=headers)


def in_one_process(config: KafkaConfig, sink: KafkaSink, outbox: Outbox) -> float:
    """Seconds of the publication, connections and the sink's first progress record included."""
    began = time.perf_counter()
    publisher = KafkaPublisher(KafkaLog(config), sink.topic, sink.topic, lambda *_: None)
    batch = DecidedBatch(outbox.plan.seq, outbox.attempt, partial(topic_messages, sink, outbox))
    publisher.publish(batch, 0, begun=lambda: None)
    return time.perf_counter() - began


def in_shards(
    send: SendShards,
    number: int,
    config: KafkaConfig,
    sink: KafkaSink,
    outbox: Outbox,
) -> float:
    """Seconds of the publication in shards; `send` sends them."""
    began = time.perf_counter()
    publisher = KafkaPublisher(KafkaLog(config), sink.topic, sink.topic, lambda *_: None)
    batch = DecidedBatch(
        outbox.plan.seq,
        outbox.attempt,
        partial(topic_messages, sink, outbox),
        number,
        lambda shards: [partial(topic_messages, sink, part) for part in outbox.cut(shards)],
        send,
    )
    publisher.publish(batch, 0, begun=lambda: None)
    return time.perf_counter() - began


def _peer(config: KafkaConfig, sink: KafkaSink, outbox: Outbox) -> float:
    """Seconds of a producer with the same settings, but for the transactions and what they are for."""
    began = time.perf_counter()
    producer = Producer(
        config.for_librdkafka()
        | {"acks": "all", "linger.ms": 5, "batch.size": BATCH_BYTES, "compression.type": "lz4"}
        | {"delivery.report.only.error": True, "queue.buffering.max.messages": 0}
    )
    for batch in topic_messages(sink, outbox):
        for key, value, timestamp_ms, headers in zip(*message_columns(batch), strict=True):
            producer.produce(sink.topic, value, key, timestamp=timestamp_ms, headers=headers)
    producer.flush()
    return time.perf_counter() - began


_PROGRAMS: Mapping[str, Callable[[KafkaConfig, KafkaSink, Outbox], float]] = {
    OURS: in_one_process,
    WITH_HEADERS: in_one_process,
    PEER: _peer,
}
"""What publishes in turns."""


def require_all(config: KafkaConfig, sink: KafkaSink, outbox: Outbox) -> None:
    """Every message once, each key's in order, as a consumer sees the topic."""
    values = defaultdict(list)
    for sent in messages(config.servers, sink.topic):
        values[sent.key()].append(sent.value())
    expected = defaultdict(list)
    for batch in topic_messages(sink, outbox):
        for message in messages_of(batch):
            expected[message.key].append(message.value)
    if values != expected:
        raise ResultWrong(f"{sink.topic} has not each of {outbox.emitted} messages once and in order")


def rows_shown(result: Result) -> Iterator[dict[str, Any]]:
    """The programs, one a line; each number as `min / median / max`."""
    for program in dict.fromkeys(run.program for run in result.runs):
        yield {
            "publisher": program,
            "records/s": spread_text(result.per_second(program), 0),
            "by those of the plain one": spread_text(result.ratios(program), 2),
        }


def as_json(result: Result) -> dict[str, Any]:
    """Every run, and the ratios."""
    programs = dict.fromkeys(run.program for run in result.runs)
    return asdict(result) | {"ratio": {program: spread(result.ratios(program)) for program in programs}}


@click.command()
@click.option("--records", default=400_000, show_default=True, help="Messages in the outbox.")
@click.option("--partitions", default=4, show_default=True, help="Of the topic.")
@click.option("--repeat", default=3, show_default=True, help="Rounds.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(records: int, partitions: int, repeat: int, json_wanted: bool) -> None:
    """Measure the publication of an outbox, beside a producer without transactions."""
    with OwnSession(f"local[{_SHARDS}]", None) as own:
        session = own.open(records)
        warm_up(session, _SHARDS)
        result = measure(records, partitions, repeat, teller(), session)
    if json_wanted:
        show_json(as_json(result))
    else:
        show_table(
            list(rows_shown(result)), f"{records:,} messages into {partitions} partitions of one broker"
        )


if __name__ == "__main__":
    main()
