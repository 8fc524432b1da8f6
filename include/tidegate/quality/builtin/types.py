"""The types of the built-in expectations, as suite files have them, and the facts that each of them needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KEYS = "expect_keys_to_not_be_null"
NEIGHBOURS = "expect_equal_neighbours_to_be_absent"
FINALS = "expect_one_final_per_window_and_key"
COUNTS = "expect_counts_to_add_up"
LATE = "expect_late_share_to_be_at_most"
QUARANTINED = "expect_quarantined_share_to_be_at_most"
EMITTED = "expect_emitted_share_to_be_as_before"

BUILTIN_TYPES = (KEYS, NEIGHBOURS, FINALS, COUNTS, LATE, QUARANTINED, EMITTED)

HISTORY_BATCHES = 20
"""The number of earlier batches that the emitted share is compared with, unless a suite sets `batches`."""
OUTBOXES_BEFORE = 1
"""The number of earlier outboxes in which a final is searched, unless a suite sets `batches`."""


@dataclass(frozen=True)
class Needs:
    """The facts about a batch that the built-in expectations of a suite need.

    Args:
        is_any: Whether the suite has built-in expectations at all.
        history: The number of earlier batches whose counts they need.
        outboxes: The number of earlier outboxes that they read.
        has_state: Whether they read the state before the batch.
    """

    is_any: bool = False
    history: int = 0
    outboxes: int = 0
    has_state: bool = False


def needs_of(expectations: Iterable[Mapping[str, Any]]) -> Needs:
    """Return what the expectations of a suite need: objects of the file, with `type` and `kwargs`.

    Example::

        needs_of([{"type": FINALS, "kwargs": {"batches": 3}}]).outboxes  # 3
    """
    needs = Needs()
    for expectation in expectations:
        type_, kwargs = expectation.get("type"), expectation.get("kwargs") or {}
        needs = Needs(
            needs.is_any or type_ in BUILTIN_TYPES,
            max(needs.history, _number(kwargs, "batches", HISTORY_BATCHES) if type_ == EMITTED else 0),
            max(needs.outboxes, _number(kwargs, "batches", OUTBOXES_BEFORE) if type_ == FINALS else 0),
            needs.has_state or (type_ == NEIGHBOURS and kwargs.get("with_state", True) is not False),
        )
    return needs


def _number(kwargs: Mapping[str, Any], name: str, default: int) -> int:
    """Return a number of a suite; 0 for any other value, which its expectation refuses when it is
    evaluated.
    """
    value = kwargs.get(name, default)
    return value if isinstance(value, int) and value > 0 else 0
