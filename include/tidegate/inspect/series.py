"""The figures of a stream over time, for charts. They are the metrics that the ledger has of its batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from tidegate.app.root import App
from tidegate.batch.freshness import P50, P95
from tidegate.batch_counts import LATE, QUARANTINED
from tidegate.inspect.read import planned_stage
from tidegate.ledger import MetricGroup, Stream
from tidegate.ledger.report import STEPS

MOST_POINTS = 120
"""The points of a chart: with more batches, a point stands for several."""
_FRESHNESS = (P50, P95)
_OF_BATCH = ("lag", "age_seconds", "read", *_FRESHNESS, *(f"seconds.{step}" for step in STEPS))
_OF_STAGE = ("emitted", *QUARANTINED, LATE, "state-rows", "state-bytes")
AGES = (50, 95)
"""The percentiles of the age."""


class ChartRange(Enum):
    """The time until now that a chart shows; `value` is in seconds."""

    HOUR = 3_600
    DAY = 86_400
    WEEK = 7 * 86_400
    MONTH = 30 * 86_400

    @property
    def label(self) -> str:
        """The name of the span for people."""
        return self.name.lower()


@dataclass(frozen=True)
class Point:
    """The figures of a batch, or of consecutive batches; a figure is None if no batch has the metric.

    Args:
        first: The first batch.
        last: The last batch.
        at_ms: When the last one was committed, epoch ms.
        lag: The greatest `lag`.
        ages: The percentiles AGES of `age_seconds`.
        freshness: The greatest `freshness.p50` and `freshness.p95`, in seconds.
        records: The sum of `read`.
        emissions: The sum of `emitted` of the stages with sinks, or of the last one.
        records_per_second: Records divided by the seconds since the commit before the first batch.
        emissions_per_second: Emissions divided by the same seconds.
        late: The sum of `expired-window-record-drop` of all stages.
        quarantined: What all stages have put into quarantine.
        seconds: Step -> the mean of its seconds.
        state_rows: `state-rows` of all stages, after the last batch.
        state_bytes: `state-bytes` of all stages, after the last batch.
    """

    first: int
    last: int
    at_ms: int
    lag: float | None
    ages: tuple[float, ...] | None
    freshness: tuple[float | None, ...]
    records: float
    emissions: float
    records_per_second: float | None
    emissions_per_second: float | None
    late: float
    quarantined: float
    seconds: Mapping[str, float]
    state_rows: float | None
    state_bytes: float | None


@dataclass(frozen=True)
class Series:
    """The figures of a span, the oldest point first.

    Args:
        since_ms: The begin of the span, epoch ms.
        until_ms: Its end.
        ages: The percentiles AGES of `age_seconds` of all batches; None if no batch has one.
    """

    since_ms: int
    until_ms: int
    points: tuple[Point, ...]
    ages: tuple[float, ...] | None


def series(app: App, stream: Stream, span: ChartRange, now_ms: int) -> Series:
    """Return the figures of the batches that were committed in a span of time.

    Args:
        span: The length of the span.
        now_ms: Its end, epoch ms.
    """
    since_ms = now_ms - span.value * 1000
    names = {False: _OF_BATCH, True: _OF_STAGE}
    groups = app.ledger.metric_groups(stream, since_ms / 1000, names, MOST_POINTS)
    if not groups:
        return Series(since_ms, now_ms, (), None)
    ages = app.ledger.metric_values(stream, (groups[0].first, groups[-1].last), "age_seconds")
    stages = _emitting(app, stream)
    points = tuple(_point(group, stages, ages) for group in groups)
    return Series(since_ms, now_ms, points, _percentiles(ages.values()))


def _emitting(app: App, stream: Stream) -> tuple[str, ...]:
    """Return the stages whose emissions go out, as last planned; without a sink the last stage."""
    planned = planned_stage(app, stream, None)
    if planned is None:
        return ()
    pipeline, last = planned
    return pipeline.published_stages or (last.name,)


def _point(group: MetricGroup, stages: Sequence[str], ages: Mapping[int, float]) -> Point:
    seconds = None if group.begins_ms is None else (group.committed_at_ms - group.begins_ms) / 1000
    batches = range(group.first, group.last + 1)
    records = group.totals.get(("", "read"), 0)
    emissions = sum(group.totals.get((stage, "emitted"), 0) for stage in stages)
    return Point(
        first=group.first,
        last=group.last,
        at_ms=group.committed_at_ms,
        lag=group.greatest.get(("", "lag")),
        ages=_percentiles(ages[seq] for seq in batches if seq in ages),
        freshness=tuple(group.greatest.get(("", name)) for name in _FRESHNESS),
        records=records,
        emissions=emissions,
        records_per_second=records / seconds if seconds else None,
        emissions_per_second=emissions / seconds if seconds else None,
        late=_sum(group.totals, LATE) or 0,
        quarantined=sum(_sum(group.totals, name) or 0 for name in QUARANTINED),
        seconds={
            step: group.totals["", f"seconds.{step}"] / len(batches)
            for step in STEPS
            if ("", f"seconds.{step}") in group.totals
        },
        state_rows=_sum(group.newest, "state-rows"),
        state_bytes=_sum(group.newest, "state-bytes"),
    )


def _sum(metrics: Mapping[tuple[str, str], float], name: str) -> float | None:
    """Return the sum of a metric over all stages; None if no stage has it."""
    values = [value for (stage, metric), value in metrics.items() if stage and metric == name]
    return sum(values) if values else None


def _percentiles(values: Iterable[float]) -> tuple[float, ...] | None:
    listed: list[Any] = list(values)
    return tuple(np.percentile(listed, AGES).tolist()) if listed else None
