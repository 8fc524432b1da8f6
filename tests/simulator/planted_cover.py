"""Planted bugs in how a run covers its interval, in worlds whose runs have several batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulator.planted import planted
from tidegate.batch import intervals

_trigger_of_batch = intervals._trigger_of_batch


@planted((intervals, "_goes_on"))
def a_run_is_over_after_its_first_batch(*_: Any) -> bool:
    """Whatever that has left unread."""
    return False


@planted((intervals, "_trigger_of_batch"))
def a_later_batch_forgets_how_far_the_interval_goes(
    ledger: Any, stream: Any, trigger: Any, before: Any
) -> Any:
    """It reads what has come in meanwhile, too."""
    of_batch = _trigger_of_batch(ledger, stream, trigger, before)
    return replace(of_batch, interval_ends=trigger.interval_ends)
