"""Whatever the seed does to the batch protocol, what comes out is what one uninterrupted run gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sampling import sampled
from tests.simulator import (
    planted_cover,
    planted_endpoints,
    planted_publisher,
    planted_replays,
    planted_shards,
    planted_steps,
    planted_trees,
    planted_worlds,
)
from tests.simulator.app import simulated
from tests.simulator.many import Sum, simulate_many
from tests.simulator.planted import PLANTED
from tests.simulator.simulate import Result, simulate, simulate_all
from tests.simulator.world import FAULTS

SEEDS = range(500)
SEEDS_TO_CATCH_A_BUG = range(5_000)
PER_TEN_THOUSAND = {
    "arrived late": 1000,
    "cleared": 1000,
    "lease expired": 1000,
    "zombies": 1000,
    "zombie woken after its successor had finished": 1000,
    "zombie woken after the commit": 1000,
    "drained": 1000,
    "intervals cut": 1000,
    "two crashes in a row": 200,
    "plans dropped": 200,
    "backfills all at once": 1000,
    "waited for an earlier interval": 1000,
    "marked as a success": 200,
    "publication fenced": 100,
    "retention passed the head": 100,
    "gaps accepted": 100,
    "append fenced": 5,
    "requests repeated": 200,
    "requests refused": 80,
    "endpoint down": 30,
    "used requests without an answer": 200,
    "progress compacted": 150,
    "batches removed": 100,
    "cleared after its batch was removed": 20,
    "topic recreated": 200,
    "log truncated": 200,
    "runs of several batches": 700,
    "records replayed": 1000,
    "records discarded": 150,
    "values refused": 1000,
    "dead letters": 500,
    "outboxes cut into shards": 1000,
    "trees of stages over two sources": 1000,
    "values expired": 750,
    "rows regrouped": 1000,
    "late records emitted": 200,
    "records joined": 600,
    "batches by the clock alone": 100,
    "grammar stricter": 1000,
    "grammar stricter after a plan": 750,
}
"""How many seeds of ten thousand must have had it: about half as many as do."""
RARE = {what for what, seeds in PER_TEN_THOUSAND.items() if seeds * len(SEEDS) < 10_000}
"""What hundreds of seeds need not have."""
FEW_SEEDS = range(100)
SELDOM_SEEN = (
    "a_commit_goes_that_the_state_still_needs",
    "a_dropped_plan_leaves_its_resolution",
    "ledger_without_seq_at_commit",
    "a_dropped_plan_is_worked_on",
    "a_replay_is_noted_after_its_plan",
    "a_run_goes_together_with_its_batch",
    "a_later_batch_in_the_progress_is_overlooked",
    "ends_lie_beyond_the_last_stable_offset",
    "messages_are_not_waited_for",
    "only_offsets_say_what_was_read",
)
"""Planted bugs that take hundreds of seeds to show."""
REPOSITORY = Path(__file__).resolve().parents[2]

assert planted_cover
assert planted_endpoints
assert planted_publisher
assert planted_replays
assert planted_shards
assert planted_steps
assert planted_trees
assert planted_worlds


@pytest.fixture(scope="module")
def total() -> Sum:
    *_, last = simulate_many(SEEDS, processes=2)
    return last


def test_a_hundred_seeds_hold() -> None:
    assert {result.seed: result.violation for result in simulate_all(FEW_SEEDS) if result.violation} == {}


@pytest.mark.heavy
def test_hundreds_of_seeds_hold(total: Sum) -> None:
    assert total.failed == {}
    assert total.counts["seeds"] == len(SEEDS)


@pytest.mark.heavy
def test_they_had_every_fault_dozens_of_times(total: Sum) -> None:
    assert {fault: total.counts[fault] for fault in FAULTS if total.counts[fault] < 50} == {}


@pytest.mark.heavy
@pytest.mark.parametrize("what", sorted(PER_TEN_THOUSAND.keys() - RARE))
def test_so_many_of_them_had(total: Sum, what: str) -> None:
    assert total.seeds_with[what] >= PER_TEN_THOUSAND[what] * len(SEEDS) // 10_000


@pytest.mark.long
def test_rare_events_happen_in_thousands_of_seeds() -> None:
    *_, last = simulate_many(SEEDS_TO_CATCH_A_BUG, processes=2)
    assert {what for what in RARE if not last.seeds_with[what]} == set()


@pytest.mark.heavy
def test_simulated_worlds_published_something(total: Sum) -> None:
    assert total.counts["published"] > 2 * len(SEEDS)


@pytest.mark.heavy
def test_a_seed_replays_exactly() -> None:
    first, second = list(simulate_all(range(20))), list(simulate_all(range(20)))
    assert [result.trace for result in first] == [result.trace for result in second]


@pytest.mark.sample(1)
@pytest.mark.heavy
@pytest.mark.parametrize("seed", [7, 1001])
def test_a_seed_replays_exactly_in_another_process(seed: int) -> None:
    assert _shown(seed, hash_seed="1") == _shown(seed, hash_seed="2")


def _shown(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulator", "--trace", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout


@pytest.mark.heavy
def test_a_failing_seed_replays_exactly() -> None:
    with simulated(), PLANTED["progress_forgets_how_much_was_sent"]():
        failed = next(result for result in _all() if result.violation)
        again = simulate(failed.seed)
    assert (again.violation, again.trace) == (failed.violation, failed.trace)


@pytest.mark.sample(6, of="bugs in simulated worlds")
@pytest.mark.heavy
@pytest.mark.parametrize("bug", sampled(PLANTED, PLANTED.keys() - SELDOM_SEEN))
def test_a_planted_bug_is_caught(bug: str) -> None:
    with simulated(), PLANTED[bug]():
        caught = next((result for result in _all() if result.violation), None)
    assert caught is not None, f"{bug} was not caught within {len(SEEDS_TO_CATCH_A_BUG)} seeds"
    crashes = re.match(r"\w*Error:|.* failed with (Type|Attribute|Name|Key)Error\(", caught.violation)
    assert not crashes, f"a bug that crashes is not the one that was meant: {caught.violation}"
    print(f"{bug} is caught at seed {caught.seed}: {caught.violation}")


def _all() -> Iterator[Result]:
    return map(simulate, SEEDS_TO_CATCH_A_BUG)
