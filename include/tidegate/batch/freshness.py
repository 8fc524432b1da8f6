"""How old emissions are when they go out, and whether that is older than `freshness` allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidegate.ledger import Attempt, LedgerReader, Plan
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.schedule import FreshnessRule
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import OpenSink
from tidegate.storage.schema import TIMESTAMP

P50, P95 = "freshness.p50", "freshness.p95"
"""The metrics: seconds from an emission's timestamp to its publication, the median and a percentile."""
ALERT = "freshness.alert"
"""The metric: 1 where the batch is beyond `freshness`, else 0."""
_GRAIN_MS = 100
"""Timestamps are counted in steps of this size, so that memory depends on their span, not on their number."""


@dataclass
class EmissionAges:
    """The timestamps of a batch's emissions, counted, under the rule that bounds their ages."""

    rule: FreshnessRule
    _counts: Counter[int] = field(default_factory=Counter)

    def add(self, outbox: Outbox) -> None:
        """Count the emissions of an outbox. Raises LakeDamaged, LakeUnavailable."""
        for rows in outbox.batches([TIMESTAMP]):
            steps, counts = np.unique(rows.column(0).to_numpy() // _GRAIN_MS, return_counts=True)
            self._counts.update(dict(zip(steps.tolist(), counts.tolist(), strict=True)))

    def metrics_at(self, now_ms: int) -> dict[str, float]:
        """Return the metrics of emissions that are published; empty without any.

        Args:
            now_ms: When they are published, epoch ms. A timestamp that is later counts as one of now.
        """
        if not self._counts:
            return {}
        p50, p95 = (self._age(now_ms, share * self._counts.total()) for share in (0.5, 0.95))
        return {P50: p50, P95: p95, ALERT: float(p95 * 1000 > self.rule.p95_ms)}

    def _age(self, now_ms: int, rank: float) -> float:
        """Return the seconds that the `rank` youngest emissions are not older than."""
        passed = 0
        for step in sorted(self._counts, reverse=True):
            passed += self._counts[step]
            if passed >= rank:
                break
        return max(0, now_ms - step * _GRAIN_MS) / 1000


def emission_ages(
    pipeline: Pipeline, sinks: Iterable[OpenSink[Any]], plan: Plan, attempt: Attempt
) -> EmissionAges | None:
    """Return the timestamps of what the sinks get of an attempt; None if the pipeline has no rule.

    A stage with two sinks counts once. A stage's late records do not count: they are old on purpose.

    Raises LakeDamaged, LakeUnavailable.
    """
    if pipeline.freshness is None:
        return None
    ages = EmissionAges(pipeline.freshness)
    own = [sink for sink in sinks if sink.gets_emissions and sink.stage in pipeline.stages]
    for sink in {sink.stage.name: sink for sink in own}.values():
        ages.add(sink.outbox(plan, attempt))
    return ages


def stale_publication(ledger: LedgerReader, plan: Plan) -> str | None:
    """Return a sentence if a published batch is beyond `freshness`; None if it is not, or has no rule."""
    rule = planned_pipeline(plan).freshness
    if rule is None:
        return None
    metrics = ledger.metrics(plan.stream, plan.seq)
    if not metrics.get(("", ALERT)):
        return None
    return (
        f"95 % of the emissions of batch {plan.seq} of {plan.stream} were out within "
        f"{metrics['', P95]:,.1f} s, and `freshness` allows {rule.p95_ms / 1000:,.1f} s"
    )
