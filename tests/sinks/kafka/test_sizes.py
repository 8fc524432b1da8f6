"""An emission that the output topic refuses for its size: found before the commit, by a real broker."""

from __future__ import annotations

import pytest

from tests.world import World, key_of
from tidegate.errors import RecordTooLarge

pytestmark = [pytest.mark.spark, pytest.mark.broker]
SETTING = "max.message.bytes"


def test_oversized_emission_halts_before_the_commit(
    world: World,
) -> None:
    world.configure(world.sink, {SETTING: "50"})
    world.stock(1)
    with pytest.raises(RecordTooLarge, match=rf"the topic {world.sink} takes 50 \({SETTING}\)"):
        world.run("r")
    assert world.app.ledger.head(world.stream).seq == 0
    assert world.published() == {}
    world.configure(world.sink, {SETTING: "1048588"})
    world.run("r")
    assert world.published() == {key_of(): [True]}
