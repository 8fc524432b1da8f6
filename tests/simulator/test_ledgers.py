"""Whatever becomes of a ledger, its clock and its generations: streams halt, or what goes out is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from tests.simulator.app import simulated
from tests.simulator.ledger import SimLeased, Tables
from tests.simulator.ledgers import simulate
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
    with simulated():
        results = [simulate(seed) for seed in FEW_SEEDS]
    assert {result.seed: result.violation for result in results if result.violation} == {}
    assert sum(result.counts["ledgers restored"] for result in results) > 5


@pytest.mark.long
def test_many_seeds_hold_and_had_it_all() -> None:
    seeds_with: Counter[str] = Counter()
    with simulated():
        for seed in MANY_SEEDS:
            result = simulate(seed)
            assert not result.violation, f"seed {seed}: {result.violation}"
            seeds_with.update(name for name, number in result.counts.items() if number)
    least = {name: number * len(MANY_SEEDS) // 1000 for name, number in PER_THOUSAND.items()}
    assert {name: seeds_with[name] for name in least if seeds_with[name] < least[name]} == {}


@pytest.mark.sample(6, of="bugs in simulated worlds")
@pytest.mark.heavy
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    with simulated(), BUGS[bug]():
        caught = next((result for result in map(simulate, SEEDS_TO_CATCH_A_BUG) if result.violation), None)
    assert caught is not None, f"{bug} was not caught"
    assert not caught.violation.startswith(("TypeError", "AttributeError", "KeyError")), caught.violation
    print(f"{bug} is caught at seed {caught.seed}: {caught.violation}")
