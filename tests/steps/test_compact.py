"""Compaction on real Kafka, Spark and Delta: what is read and sent is the same with it as without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.world import World, key_of
from tidegate import steps

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def compact(world: World, **options: Any) -> steps.Compaction:
    return steps.compact_state(world.app, world.stream, world.open_session, **options)


def test_the_state_as_of_every_batch_is_the_same_before_and_after(world: World) -> None:
    for quantity in (1, 0, 5, 0):
        world.stock(quantity)
        world.stock(quantity, product=2)
        world.stock(3, product=quantity)
        world.run()
    world.send({"value": None, "key": key_of(product=2).encode()})
    world.run()
    before = [steps.read_state(world.app, world.stream, as_of=seq) for seq in range(1, 6)]
    done = compact(world)
    assert done.note == "compacted"
    assert (done.before.rows, done.after.rows) > (0, 0)
    print(done)
    assert [steps.read_state(world.app, world.stream, as_of=seq) for seq in range(1, 6)] == before
    world.stock(1)
    world.stock(1, product=2)
    world.run()
    print(world.published())
    assert compact(world).note == "compacted"
    assert compact(world).note == "is compacted already"
