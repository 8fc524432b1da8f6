"""Faults between plan and records: gaps, deleted records, an unavailable broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from kafka.admin import ConfigResource, ConfigResourceType

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from tests.batch.test_source import own_home
from tests.world import NOW_MS, World, key_of
from tidegate.app import App
from tidegate.batch import Trigger, compute_batch, plan_batch
from tidegate.cli import cli
from tidegate.errors import BrokerUnavailable, Halted, OffsetsLost
from tidegate.kafka.records import Slice, read_slice
from tidegate_dev.broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_compacted_topic_is_read_over_its_gaps(home: Path, tmp_path: Path, spark: SparkSession) -> None:
    config = {"log.cleaner.backoff.ms": "100"}
    with KafkaBroker(own_home(home, tmp_path), config=config) as broker:
        world = World(broker.bootstrap_servers, tmp_path, lambda _: spark)
        _compact(world)
        world.stock(1, 2, product=1)
        world.stock(5, product=2)
        world.stock(3, 4, 0, product=1)
        _roll_until(world, lambda: _offsets(world)[:2] == [2, 5])
        offsets = _offsets(world)
        ends_in_a_gap = {(0, 1): [], (0, 4): [2], (3, 4): [], (3, 5): [], (4, 6): [5]}
        assert {bounds: _offsets_of_slice(world, *bounds) for bounds in ends_in_a_gap} == ends_in_a_gap
        world.write_pipeline(source_extra="max_records: 4")
        world.run()
        assert world.counts(1)["read"] == 1
        assert world.app.ledger.head(world.stream).offsets[world.source, 0] == 4
        world.write_pipeline()
        world.run()
        assert world.counts(2)["read"] == len(offsets) - 1 < offsets[-1]
        assert world.app.ledger.head(world.stream).offsets[world.source, 0] == offsets[-1] + 1
        published = world.published()
        assert published[key_of(product=1)] == [False]
        assert published[key_of(product=2)] == [True]


def _compact(world: World) -> None:
    options = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    admin = KafkaAdminClient(bootstrap_servers=world.servers)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, world.source, options)])
    admin.close()


def _offsets(world: World) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=world.servers, group_id=None)
    at = TopicPartition(world.source, 0)
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    offsets, end = list[int](), consumer.end_offsets([at])[at]
    while consumer.position(at) < end:
        offsets += [record.offset for record in consumer.poll(500).get(at, [])]
    consumer.close()
    return offsets


def _offsets_of_slice(world: World, start: int, end: int) -> list[int]:
    blocks = read_slice(world.app.settings.kafka(), Slice(world.source, 0, start, end))
    return [message.offset() for block in blocks for message in block]


def _roll_until(world: World, compacted: Callable[[], bool]) -> None:
    """Write until a newer segment follows, since only then a segment is compacted; a record of a later
    time begins one.
    """
    for product in range(3, 40):
        world.stock(6, product=product, timestamp_ms=NOW_MS + product * 1000)
        if compacted():
            return
        time.sleep(0.3)
    raise AssertionError("Kafka did not compact the topic")


def test_records_deleted_after_plan_halt_until_accepted(world: World) -> None:
    world.stock(1)
    world.run()
    world.stock(0, 0, 1, 0)
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    world.delete_records({(world.source, 0): 3})
    with pytest.raises(OffsetsLost, match=r"offsets 1 to 2 .*recover availability --choose accept-gap"):
        world.run("r")
    assert world.app.ledger.head(world.stream).seq == 1
    result = CliRunner().invoke(
        cli, ["recover", "availability", "--choose", "accept-gap", "--yes"], env=world.environment
    )
    output = " ".join(result.output.split())
    assert f"Accepted as lost: {world.source}[0] offsets 1 to 2." in output
    assert "Batch 2, which was to read them, is forgotten" in output
    world.run("after")
    assert world.published() == {key_of(): [True, False]}
    assert world.counts(2)["read"] == 2


def test_computed_batch_survives_an_accepted_gap(world: World) -> None:
    world.stock(1)
    world.run()
    world.stock(0, 0, 1, 0)
    plan = plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS)).plan
    assert plan is not None
    compute_batch(world.app, plan, "r", world.open_session)
    world.delete_records({(world.source, 0): 3})
    world.app.ledger.acquire(world.stream, "r").release()
    result = CliRunner().invoke(
        cli, ["recover", "availability", "--choose", "accept-gap", "--yes"], env=world.environment
    )
    assert isinstance(result.exception, Halted)
    assert "Batch 2 of availability/1 has read its records already" in str(result.exception)
    findings = CliRunner().invoke(cli, ["doctor", "availability", "--json"], env=world.environment)
    assert "OffsetsLost" not in findings.output
    world.run("r")
    assert world.published() == {key_of(): [True, False, True, False]}


@pytest.mark.long  # Spark tries for more than a minute
def test_broker_lost_in_compute_is_transient(home: Path, tmp_path: Path, spark: SparkSession) -> None:
    with KafkaBroker(own_home(home, tmp_path)) as broker:
        world = World(broker.bootstrap_servers, tmp_path, lambda _: spark)
        servers = {"bootstrap.servers": world.servers, "request.timeout.ms": "3000"}
        world.app = App.from_environment(world.environment | {"TIDEGATE_KAFKA": json.dumps(servers)})
        world.stock(1, 0)
        world.send({"value": b"{no json", "key": b"x"})

        def after_the_broker(_: int) -> SparkSession:
            broker.kill()
            return spark

        world.open_session = after_the_broker
        with pytest.raises(BrokerUnavailable, match=r"nothing is lost"):
            world.run("r")
        plan = world.app.ledger.open_plan(world.stream)
        assert plan is not None
        assert world.app.ledger.attempt(world.stream, plan.seq) is None
        assert not list((tmp_path / "lake").rglob("*.parquet"))
        broker.start()
        world.open_session = lambda _: spark
        assert world.run("r").plan == plan
        assert world.published() == {key_of(): [True, False]}
