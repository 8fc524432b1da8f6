"""Whenever a looked-up table changes, and whoever is killed meanwhile: what goes out follows it, once."""

from __future__ import annotations

import pytest

from tests.sampling import sampled
from tests.simulator.planted_tables import BUGS
from tests.simulator.seeds import assert_bug_is_caught, assert_few_seeds_hold, assert_seeds_hold
from tests.simulator.tables import simulate

FEW_SEEDS, MANY_SEEDS, SEEDS_TO_CATCH_A_BUG = range(15), range(15, 75), range(600)
PER_THOUSAND = {
    "another generation looked up": 100,
    "batches by a table alone": 200,
    "batches repeated": 50,
    "net promotions": 100,
    "records joined again": 300,
    "records replayed": 20,
    "tables changed while a batch was open": 300,
    "tables replaced": 80,
    "went back": 80,
}
"""How many seeds of a thousand must have had it."""

SELDOM_SEEN = "changes_of_a_retried_batch_go_out_twice"
"""The planted bug that takes hundreds of seeds to show."""


@pytest.mark.heavy
def test_fifteen_table_seeds_hold() -> None:
    assert_few_seeds_hold(simulate, FEW_SEEDS, "records joined again", more_than=20)


@pytest.mark.heavy
def test_many_seeds_hold_and_had_it_all() -> None:
    assert_seeds_hold(simulate, MANY_SEEDS, PER_THOUSAND)


@pytest.mark.sample(6, of="bugs in simulated worlds")
@pytest.mark.heavy
@pytest.mark.parametrize("bug", sampled(BUGS, BUGS.keys() - {SELDOM_SEEN}))
def test_a_planted_bug_is_caught(bug: str) -> None:
    assert_bug_is_caught(simulate, SEEDS_TO_CATCH_A_BUG, bug, BUGS[bug])
