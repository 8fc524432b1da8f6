"""Planted bugs in what is decided of records in quarantine."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

from tests.simulator.ledger import Checks, SimLeased, SimReader
from tests.simulator.planted import PLANTED, planted

_add_plan = SimLeased.add_plan
_resolutions = SimReader.resolutions

PLANTED["a_dropped_plan_leaves_its_resolution"] = partial(
    patch.object, Checks, "plan_takes_its_resolution_along", False
)


PLANTED["a_refused_value_is_replayed"] = partial(patch, "tidegate.quarantine.replay.EMISSION", -99)


@planted((SimLeased, "add_plan"))
def a_replay_is_planned_and_not_noted(self: Any, plan: Any, resolution: Any = None) -> None:
    """The ledger never learns which records it has."""
    _add_plan(self, plan)


@planted((SimLeased, "add_plan"))
def a_replay_is_noted_after_its_plan(self: Any, plan: Any, resolution: Any = None) -> None:
    """Whoever is killed in between has planned one that is not noted."""
    _add_plan(self, plan)
    if resolution is not None:
        self.add_resolution(resolution)


@planted((SimReader, "resolutions"))
def only_replays_resolve(self: Any, stream: Any) -> Any:
    """Return replays only, so that a discarded record is open again."""
    return [made for made in _resolutions(self, stream) if made.seq is not None]
