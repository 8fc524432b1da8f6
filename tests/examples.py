"""The number of examples that a property is tried on: all in `make fuzz`, a share of them in `make test`
and `make check`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from random import Random
from typing import TypeVar

from hypothesis import settings

from tests.sampling import SEED

T = TypeVar("T")

_ONE_IN = int(os.environ.get("TIDEGATE_TEST_ONE_EXAMPLE_IN", "1"))


def share(number: int) -> int:
    """Return as many of `number` cases that are drawn by seed as this run tries: all, or a share."""
    return max(number // _ONE_IN, 1)


def share_of(cases: Iterable[T]) -> list[T]:
    """Return the cases that this run tries, in their order: all, or a share that is chosen by seed."""
    every = list(cases)
    return [every[at] for at in sorted(Random(SEED).sample(range(len(every)), share(len(every))))]


DEFAULT_EXAMPLES = share(100)
"""The number of examples of a property that names none."""


def examples(number: int) -> settings:
    """Return settings for a property that is tried on `number` examples. An example has no deadline."""
    return settings(max_examples=share(number), deadline=None)
