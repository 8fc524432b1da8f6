"""Whoever is killed while batches are repeated: they have what they had, and nothing goes out twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.simulator.compute import folded_state
from tests.simulator.repeats import simulate
from tests.simulator.seeds import assert_bug_is_caught, assert_few_seeds_hold, assert_seeds_hold
from tidegate.batch.trigger import RepeatedBatch
from tidegate.generations import lifecycle
from tidegate.ledger import planned

FEW_SEEDS, MANY_SEEDS, SEEDS_TO_CATCH_A_BUG = range(15), range(15, 45), range(200)
PER_THOUSAND = {
    "batches inherited": 200,
    "batches repeated": 400,
    "net promotions": 100,
    "recomputed": 200,
    "restated": 180,
    "trees of stages over two sources": 100,
    "went back": 100,
}
"""How many seeds of a thousand must have had it."""

_planned = RepeatedBatch.planned


def _at_another_clock(self: RepeatedBatch, head: Any, plan: Any) -> Any:
    repeated = _planned(self, head, plan)
    return replace(repeated, clock_ms=repeated.clock_ms + 1)


def _without_the_last_batch(app: Any, origin: Any, seq: int, *rest: Any) -> Any:
    return folded_state(app, origin, seq - 1, *rest)


BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a_repeated_batch_has_another_clock": partial(patch.object, RepeatedBatch, "planned", _at_another_clock),
    "a_state_lacks_its_last_batch": partial(
        patch.object, lifecycle, "_folded_state", _without_the_last_batch
    ),
    "nobody_inherits": partial(patch.object, planned, "inherited_sinks", lambda *_: ()),
}


@pytest.mark.heavy
def test_fifteen_repeat_seeds_hold() -> None:
    assert_few_seeds_hold(simulate, FEW_SEEDS, "batches repeated", more_than=10)


@pytest.mark.heavy
def test_many_seeds_hold_and_had_it_all() -> None:
    assert_seeds_hold(simulate, MANY_SEEDS, PER_THOUSAND)


@pytest.mark.sample(6, of="bugs in simulated worlds")
@pytest.mark.heavy
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    assert_bug_is_caught(simulate, SEEDS_TO_CATCH_A_BUG, bug, BUGS[bug])
