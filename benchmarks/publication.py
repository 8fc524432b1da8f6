"""One outbox into Kafka through one, two and four producers, beside a plain producer without transactions.

`python -m benchmarks.publication --help`
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from benchmarks.figures import show_json, show_table, spread, spread_text, teller
from benchmarks.place import temporary_home
from benchmarks.programs import ResultWrong
from tidegate.broker import KafkaConfig, KafkaLog
from tidegate.broker.publisher import KafkaPublisher
from tidegate.demo.topics import committed_records
from tidegate.ledger import Plan, Stream
from tidegate.local.broker import KafkaBroker
from tidegate.spec import KafkaSink, Pipeline, parse_pipeline
from tidegate.steps.messages import topic_messages
from tidegate.steps.outbox import Outbox
from tidegate.steps.producers import Share, publish_shares

PEER = "plain"
_PER_KEY = 4
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
    """One way through the whole outbox: `1`, `2`, … producers, or the peer."""

    program: str
    repeat: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """All runs, in the order in which they were made."""

    records: int
    runs: tuple[Run, ...]

    def per_second(self, program: str) -> list[float]:
        return [self.records / run.seconds for run in self.runs if run.program == program]

    def ratios(self, program: str) -> list[float]:
        """Records per second, by those of the peer in the same round."""
        pairs = zip(self.per_second(program), self.per_second(PEER), strict=True)
        return [ours / theirs for ours, theirs in pairs]


def measure(
    records: int, partitions: int, producers: Sequence[int], repeat: int, say: Callable[[str], None]
) -> Result:
    """Publish the same outbox in turns, each time into a topic of its own. Raises ResultWrong."""
    runs: list[Run] = []
    with temporary_home() as home, KafkaBroker(home) as broker:
        outbox = _outbox(home, records)
        config = KafkaConfig.parse(broker.bootstrap_servers)
        with KafkaLog(config) as log:
            log.ensure_progress_topic()
        for number in range(1, repeat + 1):
            for of in (*producers, 0):
                program = str(of) if of else PEER
                say(f"{program}, round {number} of {repeat}")
                sink = _sink(config, f"out-{program}-{number}", partitions)
                seconds = _tidegate(config, sink, outbox, of) if of else _peer(config, sink, outbox)
                runs.append(Run(program, number, seconds))
                _require_all(config, sink, outbox)
    return Result(records, tuple(runs))


def _outbox(home: Path, records: int) -> Outbox:
    """As compute leaves it: sorted by key and ordinal; values of about 10 bytes, four of each key."""
    numbers = range(records)
    keys = [f"{number // _PER_KEY:08}" for number in numbers]
    file = home / "outbox.parquet"
    columns = {
        "key": keys,
        "ordinal": pa.array(numbers, pa.int64()),
        "payload": [f'{{"n": {number % _PER_KEY}}}' for number in numbers],
        "timestamp": pa.array(numbers, pa.int64()),
        "source": [f"stock/0/{number}" for number in numbers],
        "window_start": pa.nulls(records, pa.int64()),
        "window_end": pa.nulls(records, pa.int64()),
    }
    pq.write_table(pa.table(columns), file)
    pipeline = _pipeline()
    plan = Plan(Stream("published", 1), 1, "benchmark", 0, 0, (), {}, pipeline.text, pipeline.hash)
    return Outbox(plan, pipeline.stages[0], "measured", records, (str(file),))


def _pipeline() -> Pipeline:
    return parse_pipeline(_PIPELINE, "published.yaml")


def _sink(config: KafkaConfig, topic: str, partitions: int) -> KafkaSink:
    admin = KafkaAdminClient(bootstrap_servers=config.servers)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        admin.close()
    return KafkaSink(kind="kafka", topic=topic)


def _tidegate(config: KafkaConfig, sink: KafkaSink, outbox: Outbox, of: int) -> float:
    """Seconds of the publication, processes that start included; of all but a sink's first use."""
    shares = []
    for part in range(of):
        publisher = KafkaPublisher(config, f"{sink.topic}#{part}", sink.topic)
        publisher.begin(outbox.plan.seq)
        shares.append(Share(publisher, sink, outbox, 0, part, of))
    began = time.perf_counter()
    publish_shares(shares)
    return time.perf_counter() - began


def _peer(config: KafkaConfig, sink: KafkaSink, outbox: Outbox) -> float:
    """Seconds of a producer with the same settings, but for the transactions and what they are for."""
    began = time.perf_counter()
    producer = KafkaProducer(
        **config.for_python(), acks="all", linger_ms=20, batch_size=256 * 1024, compression_type="lz4"
    )
    for each in topic_messages(sink, outbox):
        producer.send(
            sink.topic,
            key=each.key,
            value=each.value,
            headers=list(each.headers),
            timestamp_ms=each.timestamp_ms,
        )
    producer.flush()
    producer.close()
    return time.perf_counter() - began


def _require_all(config: KafkaConfig, sink: KafkaSink, outbox: Outbox) -> None:
    """Every message once, each key's in order, as a consumer sees the topic."""
    found = defaultdict(list)
    for record in committed_records(config.servers, sink.topic):
        found[record.key].append(record.value)
    expected = defaultdict(list)
    for message in topic_messages(sink, outbox):
        expected[message.key].append(message.value)
    if found != expected:
        raise ResultWrong(f"{sink.topic} has not each of {outbox.emitted} messages once and in order")


def rows_shown(result: Result) -> Iterator[dict[str, Any]]:
    """The programs, one a line; each number as `min / median / max`."""
    for program in dict.fromkeys(run.program for run in result.runs):
        yield {
            "producers": program,
            "records/s": spread_text(result.per_second(program), 0),
            "by those of the plain one": spread_text(result.ratios(program), 2),
        }


def as_json(result: Result) -> dict[str, Any]:
    """Every run, and the ratios."""
    programs = dict.fromkeys(run.program for run in result.runs)
    return asdict(result) | {"ratio": {each: spread(result.ratios(each)) for each in programs}}


@click.command()
@click.option("--records", default=400_000, show_default=True, help="Messages in the outbox.")
@click.option("--partitions", default=4, show_default=True, help="Of the topic.")
@click.option("--producers", default="1,2,4", show_default=True, help="How many, in turns.")
@click.option("--repeat", default=3, show_default=True, help="Rounds.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(records: int, partitions: int, producers: str, repeat: int, json_wanted: bool) -> None:
    """Measure the publication of an outbox, beside a producer without transactions."""
    result = measure(records, partitions, json.loads(f"[{producers}]"), repeat, teller())
    if json_wanted:
        show_json(as_json(result))
    else:
        show_table(
            list(rows_shown(result)), f"{records:,} messages into {partitions} partitions of one broker"
        )


if __name__ == "__main__":
    main()
