"""The types of the built-in expectations, as suite files have them, and what each has to know of a batch."""

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
"""How many batches before are looked at for the emitted share, unless a suite says otherwise."""
OUTBOXES_BEFORE = 1
"""In how many outboxes before a final is looked for, unless a suite says otherwise."""


@dataclass(frozen=True)
class Needs:
    """What a suite's built-in expectations have to know: how many batches of history, how many outboxes
    before, and whether the state before the batch. `is_any`: whether it has such expectations at all.
    """

    is_any: bool = False
    history: int = 0
    outboxes: int = 0
    has_state: bool = False


def needs_of(expectations: Iterable[Mapping[str, Any]]) -> Needs:
    """What these expectations of a suite file need: objects with `type` and `kwargs`."""
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
    """What a suite says; what is no number, its expectation refuses."""
    value = kwargs.get(name, default)
    return value if isinstance(value, int) and value > 0 else 0
