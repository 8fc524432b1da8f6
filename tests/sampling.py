"""A sample of a test's cases in `make test`, all of them in `make e2e`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timezone
from random import Random
from typing import Any

import pytest

_DEFAULT_SEED = "1" if "CI" in os.environ else f"{datetime.now(timezone.utc):%Y%m%d}"
SEED = os.environ.setdefault("TIDEGATE_TEST_SEED", _DEFAULT_SEED)
"""What chooses the samples, in all workers of a run: in CI always the same, elsewhere others each day."""


def sampled(values: Iterable[str], always: Collection[str]) -> list[Any]:
    """The values as parameters: those that are not of the sample are long."""
    return [pytest.param(value, marks=[] if value in always else pytest.mark.long) for value in values]


def leave_a_sample(items: Iterable[pytest.Item]) -> None:
    """Mark as long the cases that `@pytest.mark.sample(size, of="matrix")` leaves out by seed.

    Without `of`, the matrix is the test itself; otherwise all tests that name it.
    A case that is asked for by its id runs, since it is the only one of its test.
    """
    matrices: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sample")
        if mark is not None and item.get_closest_marker("long") is None:
            name = mark.kwargs.get("of", item.nodeid.partition("[")[0])
            matrices[name, mark.args[0]].append(item)
    for (name, size), cases in matrices.items():
        chosen = Random(f"{SEED} {name}").sample(cases, min(size, len(cases)))
        for case in cases:
            if case not in chosen:
                case.add_marker(pytest.mark.long)
