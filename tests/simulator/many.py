"""Many seeds, on several processes."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat

from tests.simulator import generations, ledgers, repeats, simulate, tables
from tests.simulator.app import simulated

WORLDS: dict[str, Callable[[int], simulate.Result]] = {
    "runs": simulate.simulate,
    "generations": generations.simulate,
    "ledgers": ledgers.simulate,
    "repeats": repeats.simulate,
    "tables": tables.simulate,
}
"""Kind of world -> what simulates one of it, within `simulated()`."""
SEEDS_AT_ONCE = 250
PARTS_OF_A_POOL = 16


@dataclass
class Sum:
    """The sum over many seeds: how often each event occurred, in how many seeds, and the violations."""

    counts: Counter[str] = field(default_factory=Counter)
    seeds_with: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    def include(self, other: Sum) -> None:
        self.counts.update(other.counts)
        self.seeds_with.update(other.seeds_with)
        self.failed |= other.failed


def simulate_some(seeds: range, world: str = "runs") -> Sum:
    """Simulate the seeds in this process."""
    total = Sum()
    with simulated():
        for result in map(WORLDS[world], seeds):
            total.counts.update(result.counts)
            total.seeds_with.update(name for name, number in result.counts.items() if number)
            if result.violation:
                total.failed[result.seed] = result.violation
    return total


def _begin() -> None:
    # what seeds leave behind ends with the process: to look for it would take a sixth of the time
    gc.disable()
    logging.disable(logging.ERROR)  # nobody reads what a million seeds warn of: `--trace` shows one seed
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed cannot end its pool."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def simulate_many(seeds: range, processes: int, world: str = "runs") -> Iterator[Sum]:
    """Simulate the seeds on several processes. Yields the sum so far after each part."""
    of_a_pool = PARTS_OF_A_POOL * SEEDS_AT_ONCE
    so_far = Sum()
    # not forks of the caller: they would share what that has open
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([simulate_some.__module__])
    for begun in range(0, len(seeds), of_a_pool):
        of_pool = seeds[begun : begun + of_a_pool]
        parts = [of_pool[at : at + SEEDS_AT_ONCE] for at in range(0, len(of_pool), SEEDS_AT_ONCE)]
        with ProcessPoolExecutor(min(processes, len(parts)), context, _begin) as pool:
            for part in pool.map(simulate_some, parts, repeat(world)):
                so_far.include(part)
                yield so_far
