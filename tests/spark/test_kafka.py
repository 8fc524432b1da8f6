"""Batches of the data plane out of a real broker: slices, lost records, and where credentials do not go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.kafka.test_records import Topic
from tests.spark.played import Played
from tidegate.errors import OffsetsLost
from tidegate.formats import RecordLayout
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.records import Slice
from tidegate.ledger.records import OffsetRange
from tidegate.spark.decoding import Decoding, SliceReader, readers_of_tasks
from tidegate.spark.source import KafkaSlice, KafkaSource, slices_of
from tidegate.yaml.load import parse_case_pipeline
from tidegate_dev.broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CANARY = "canary-7f3a"


@pytest.fixture
def topic(broker: KafkaBroker) -> Topic:
    return Topic(broker.bootstrap_servers)


def _played(spark: SparkSession, root: Path, topic: Topic, **stage: Any) -> Played:
    changes = {"name": "changes", "select": {"open": "quantity > 0"}, "reduce": "latest"}
    source = {"topics": [topic.name], "format": "json", "columns": "id bigint, quantity int", "key": ["id"]}
    stages = [{**changes, "emit": {"on": "change"}, **stage}]
    pipeline = parse_case_pipeline({"pipeline": "of_kafka", "source": source, "stages": stages}, "case")
    return Played(spark, pipeline, root)


def _event(key: int, quantity: int) -> str:
    return f'{{"id": {key}, "quantity": {quantity}}}'


def _source(topic: Topic, start: int, end: int, **properties: str) -> KafkaSource:
    config = KafkaConfig({"bootstrap.servers": topic.servers, **properties})
    return KafkaSource(config, (OffsetRange(topic.name, 0, start, end),))


def test_batch_reads_its_range_over_previous_state(spark: SparkSession, tmp_path: Path, topic: Topic) -> None:
    topic.send(*(_event(key, 1) for key in range(10)))
    topic.transaction(*(_event(key, 0) for key in range(10)), abort=True)
    topic.transaction(*(_event(key, key % 2) for key in range(10)))
    played = _played(spark, tmp_path, topic)
    played.read(_source(topic, 0, 10))
    played.read(_source(topic, 10, 32))
    emitted = {key: [row["value"]["open"] for row in rows] for key, rows in played.emissions().items()}
    assert emitted == {str(key): [True] if key % 2 else [True, False] for key in range(10)}
    assert [computed.counts[""]["read"] for computed in played.batches] == [10, 10]


def test_deleted_records_halt_with_their_offsets(spark: SparkSession, tmp_path: Path, topic: Topic) -> None:
    topic.send(*(_event(key, 1) for key in range(10)))
    topic.delete_before(4)
    played = _played(spark, tmp_path, topic)
    with pytest.raises(OffsetsLost, match="offsets 0 to 3"):
        played.read(_source(topic, 0, 10))
    assert played.batches == []


def test_a_plan_of_spark_has_no_credentials(
    spark: SparkSession, tmp_path: Path, topic: Topic, capfd: pytest.CaptureFixture[str]
) -> None:
    played = _played(spark, tmp_path, topic)
    frame = played.frame(_source(topic, 0, 0, **{"sasl.password": CANARY}))
    frame.explain("extended")
    output = capfd.readouterr()
    assert "MapInArrow" in output.out
    assert CANARY not in output.out + output.err
    assert not any(CANARY in value for value in spark.conf.getAll.values())


def test_large_range_is_cut_unless_stages_keep_time() -> None:
    ranges = [OffsetRange("t", 0, 100, 1_000_100), OffsetRange("t", 1, 0, 10)]
    cut = slices_of(ranges, timed=False, parallelism=4)
    assert [(slice_.partition, slice_.start, slice_.end) for slice_ in cut] == [
        *((0, 100 + 250_000 * piece, 100 + 250_000 * (piece + 1)) for piece in range(4)),
        (1, 0, 10),
    ]
    whole = slices_of(ranges, timed=True, parallelism=4)
    assert [slice_.end - slice_.start for slice_ in whole] == [1_000_000, 10]


def test_a_slice_says_nothing_of_its_credentials() -> None:
    (slice_,) = slices_of([OffsetRange("t", 0, 0, 10)], timed=True, parallelism=1)
    config = KafkaConfig({"bootstrap.servers": "host:1", "sasl.password": CANARY})
    assert CANARY not in repr(KafkaSlice(config, slice_))


def test_small_slices_share_tasks_with_one_per_large() -> None:
    spans = [1_000_000, *[10] * 199]
    ranges = [OffsetRange("t", number, 0, span) for number, span in enumerate(spans)]
    readers = [_reader(slice_) for slice_ in slices_of(ranges, timed=True, parallelism=2)]
    tasks = readers_of_tasks(readers, cores=2)
    assert len(tasks) == 8
    read = [reader.slice.range.partition for task in tasks for reader in task.readers]
    assert sorted(read) == list(range(200))
    assert sorted(len(task.readers) for task in tasks) == [1, 28, 28, 28, 28, 29, 29, 29]
    few = readers_of_tasks(readers[:3], cores=2)
    assert [len(task.readers) for task in few] == [1, 1, 1]


def _reader(slice_: Slice) -> SliceReader:
    layout = RecordLayout("string", pa.schema([("value", pa.string())]))
    decoding = Decoding("source", layout, 0, keeps_input=False)
    return SliceReader(KafkaSlice(KafkaConfig({}), slice_), decoding, None, tasks=1)
