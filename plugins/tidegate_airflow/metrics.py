"""Send metrics of pipelines to Airflow's metrics backend (StatsD, Datadog or OpenTelemetry).

The name is `tidegate.<metric>`, with the tags `pipeline`, `generation` and, for a stage's counts, `stage`. If
StatsD has no tags, they are part of the name: `tidegate.<pipeline>.<generation>.<stage>.<metric>`.
docs/monitoring.md lists the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

if TYPE_CHECKING:
    from tidegate.ledger import Stream

_BACKENDS = ("statsd_datadog_enabled", "statsd_on", "otel_on")
FAILURES = "failures"


def are_on() -> bool:
    """Return whether Airflow sends metrics anywhere.

    Example: False unless `[metrics]` of airflow.cfg turns on StatsD, Datadog or OpenTelemetry.
    """
    return any(conf.getboolean("metrics", option) for option in _BACKENDS)


def gauge(stream: Stream, metrics: Mapping[tuple[str, str], float]) -> None:
    """Send (stage, metric) -> value as gauges; the stage of the whole stream's metrics is "".

    Example: `gauge(stream, {("latest", "emitted"): 120.0})`
    """
    for (stage, metric), value in metrics.items():
        name, tags = _name(metric, _tags(stream, stage=stage))
        stats.gauge(name, value, tags=tags)


def count_failure(stream: Stream, task_id: str, error: str) -> None:
    """Count one more failed try of a task, by the class of the error.

    Example: `count_failure(stream, "compute", "OffsetsLost")`
    """
    name, tags = _name(FAILURES, _tags(stream, task=task_id, error=error))
    stats.incr(name, tags=tags)


def _tags(stream: Stream, **more: str) -> dict[str, str]:
    tags = {"pipeline": stream.pipeline, "generation": str(stream.generation), **more}
    # An empty stage would be an empty part of the name.
    return {name: value for name, value in tags.items() if value}


def _name(metric: str, tags: dict[str, str]) -> tuple[str, dict[str, str]]:
    # The order of the tags is that of the name's parts: dict keeps it.
    parts = [] if _has_tags() else tags.values()
    return ".".join(["tidegate", *parts, metric]), tags


def _has_tags() -> bool:
    """Return whether the backend has tags. Plain StatsD has none, and would mix all pipelines into one
    metric.
    """
    if conf.getboolean("metrics", "statsd_datadog_enabled"):
        return True
    return not conf.getboolean("metrics", "statsd_on") or conf.getboolean(
        "metrics", "statsd_influxdb_enabled"
    )
