"""How many examples a property is tried on."""

from __future__ import annotations

import os

from hypothesis import settings

_ONE_IN = int(os.environ.get("TIDEGATE_TEST_ONE_EXAMPLE_IN", "1"))
"""`make check`, which is run before each commit, tries a few."""


def examples(number: int) -> settings:
    """So many, or a share of them; how long one takes says nothing."""
    return settings(max_examples=max(number // _ONE_IN, 1), deadline=None)
