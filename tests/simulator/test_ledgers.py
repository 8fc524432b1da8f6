"""Whatever becomes of a ledger, its clock and its generations: streams halt, or what goes out is right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.simulator.ledger import SimLeased, Tables
from tests.simulator.ledgers import simulate
from tests.simulator.seeds import assert_bug_is_caught, assert_few_seeds_hold, assert_seeds_hold
from tidegate.app import lease
from tidegate.batch import publish
from tidegate.sinks.port import OpenSink

FEW_SEEDS, MANY_SEEDS, SEEDS_TO_CATCH_A_BUG = range(30), range(30, 105), range(500)
PER_THOUSAND = {
    "another ledger halted": 150,
    "batches lost by a restore": 80,
    "clocks behind": 150,
    "generations dropped": 100,
    "halted": 150,
    "ledgers restored": 200,
    "trees of stages over two sources": 100,
    "went on after a restore": 80,
}
"""How many seeds of a thousand must have had it."""


def _no_instant(ledger: SimLeased, tables: Tables) -> float:
    return ledger._store.now()


BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nobody_looks_whose_a_folder_is": partial(patch.object, lease, "claim_folder", lambda *_: None),
    "a_lost_promotion_is_unnoticed": partial(patch.object, publish, "claim_promotions", lambda *_: None),
    "a_sink_may_have_any_attempt": partial(patch.object, OpenSink, "require_committed", lambda *_: None),
    "instants_follow_the_clock": partial(patch.object, SimLeased, "_instant", _no_instant),
}


@pytest.mark.heavy
def test_thirty_ledger_seeds_hold() -> None:
    assert_few_seeds_hold(simulate, FEW_SEEDS, "ledgers restored", more_than=5)


@pytest.mark.long
def test_many_seeds_hold_and_had_it_all() -> None:
    assert_seeds_hold(simulate, MANY_SEEDS, PER_THOUSAND)


@pytest.mark.sample(6, of="bugs in simulated worlds")
@pytest.mark.heavy
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    assert_bug_is_caught(simulate, SEEDS_TO_CATCH_A_BUG, bug, BUGS[bug])
