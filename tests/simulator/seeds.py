"""Many worlds by their seeds: all hold, and have had what they are for; or a planted bug shows in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from tests.simulator.app import simulated
from tests.simulator.simulate import Result


def assert_seeds_hold(
    simulate: Callable[[int], Result], seeds: Sequence[int], per_thousand: Mapping[str, int]
) -> None:
    """Require that no world of the seeds violates a promise, and that each thing of `per_thousand` came in
    at least so many of a thousand worlds.
    """
    seeds_with: Counter[str] = Counter()
    with simulated():
        for seed in seeds:
            world = simulate(seed)
            assert not world.violation, f"seed {seed}: {world.violation}"
            seeds_with.update(name for name, number in world.counts.items() if number)
    least = {name: number * len(seeds) // 1000 for name, number in per_thousand.items()}
    assert {name: seeds_with[name] for name in least if seeds_with[name] < least[name]} == {}


def assert_few_seeds_hold(
    simulate: Callable[[int], Result], seeds: Iterable[int], counted: str, more_than: int
) -> None:
    """Require that no world of the seeds violates a promise, and that the thing came more often than that."""
    with simulated():
        worlds = [simulate(seed) for seed in seeds]
    assert {world.seed: world.violation for world in worlds if world.violation} == {}
    assert sum(world.counts[counted] for world in worlds) > more_than


def assert_bug_is_caught(
    simulate: Callable[[int], Result],
    seeds: Iterable[int],
    bug: str,
    planted: Callable[[], AbstractContextManager[object]],
) -> None:
    """Require that a world with the bug violates a promise, and does not merely crash."""
    with simulated(), planted():
        caught = next((world for world in map(simulate, seeds) if world.violation), None)
    assert caught is not None, f"{bug} was not caught"
    assert not caught.violation.startswith(("TypeError", "AttributeError", "KeyError")), caught.violation
    print(f"{bug} is caught at seed {caught.seed}: {caught.violation}")
