"""A sample of a test's parameters in `make test`, all of them in `make e2e`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(values: Iterable[str], always: Collection[str]) -> list[Any]:
    """The values as parameters: those that are not of the sample are long."""
    return [pytest.param(value, marks=[] if value in always else pytest.mark.long) for value in values]
