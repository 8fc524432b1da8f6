"""Records without a key from topic to topic, on real Kafka and real Spark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.world import World
from tidegate.errors import SinkRefused
from tidegate_dev.demo.topics import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.broker]
STAGE: dict[str, Any] = {"name": "copy", "select": {"n": "n"}, "emit": {"on": "update", "deletions": "all"}}


def sent(world: World) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values in the world's sink, of each partition in order."""
    return [(record.key, record.value) for record in committed_records(world.servers, world.sink)]


def state_rows(world: World, seq: int) -> float:
    return world.counts(seq)["state-rows"]


def test_records_without_a_key_go_out_without_one(world: World) -> None:
    world.write({"columns": "n int", "null_key": "keep"}, STAGE)
    world.send({"value": {"n": 1}}, {"value": {"n": 2}, "partition": 1}, {"value": {"n": 3}, "key": b"k"})
    world.run()
    world.send({"value": {"n": 1}}, {"value": None, "key": b"other"}, {"value": b"x"})
    world.run()
    expected = [(None, b'{"n":1}'), (None, b'{"n":1}'), (None, b'{"n":2}')]
    expected += [(b"k", b'{"n":3}'), (b"other", None)]
    assert sorted(sent(world), key=repr) == sorted(expected, key=repr)
    assert (world.counts(2)["quarantined"], state_rows(world, 1)) == (1, 3)  # a row per partition, and k's


def test_null_of_a_typed_key_is_no_key(world: World) -> None:
    source = {"columns": "n int", "key_format": "kafka", "key_columns": "id bigint", "key": ["id"]}
    sink = {"kind": "kafka", "topic": world.sink, "key_format": "kafka", "with_key": True}
    world.write(source | {"null_key": "keep"}, STAGE, sinks=[sink])
    world.send({"value": {"n": 1}}, {"value": {"n": 2}, "key": bytes([0] * 7 + [7])})
    world.run()
    expected = [(None, b'{"id":null,"n":1}'), (bytes([0] * 7 + [7]), b'{"id":7,"n":2}')]
    assert sorted(sent(world), key=repr) == sorted(expected, key=repr)


def test_key_of_several_columns_keeps_its_nulls(world: World) -> None:
    source = {"columns": "n int", "key_format": "json", "key_columns": "a int, b int", "key": ["a", "b"]}
    sink = {"kind": "kafka", "topic": world.sink, "key_format": "json"}
    world.write(source | {"null_key": "keep"}, STAGE, sinks=[sink])
    world.send(*({"value": {"n": 1}, "key": key} for key in (None, b"{}", b'{"b": 1}')))
    world.run()
    keys = [key for key, _ in sent(world)]
    assert sorted(keys, key=repr) == sorted([None, b'{"a":null,"b":null}', b'{"a":null,"b":1}'], key=repr)


def test_source_without_keys_sends_none(world: World) -> None:
    world.write({"columns": "n int", "key": []}, STAGE)
    world.send({"value": {"n": 1}, "key": b"k"}, {"value": None, "key": b"\xff"}, {"value": {"n": 2}})
    world.run()
    expected = [(None, None), (None, b'{"n":1}'), (None, b'{"n":2}')]
    assert sorted(sent(world), key=repr) == sorted(expected, key=repr)


def test_compacted_topic_is_refused_before_the_commit(world: World) -> None:
    world.write({"columns": "n int", "null_key": "keep"}, STAGE)
    world.configure(world.sink, {"cleanup.policy": "compact"})
    world.send({"value": {"n": 1}})
    with pytest.raises(SinkRefused, match="takes no record without a key"):
        world.run()
    assert sent(world) == []
