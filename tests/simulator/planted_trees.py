"""Planted bugs where stages are a tree over two sources, and clocks let values out."""

from __future__ import annotations

from typing import Any

from tests.simulator.planted import planted
from tests.simulator.tree import LATE, MINUTES
from tidegate.batch import plan
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage

_stage_of = Pipeline.stage_of


@planted((plan, "clock_may_fire"))
def the_clock_alone_makes_no_batch(*_: Any) -> bool:
    """Let what expires wait for the next record."""
    return False


@planted((Pipeline, "stage_of"))
def late_records_come_from_the_outbox_of_their_stage(self: Pipeline, sink: Any) -> Stage:
    stage = _stage_of(self, sink)
    return stage if stage.name != LATE else next(own for own in self.stages if own.name == MINUTES)
