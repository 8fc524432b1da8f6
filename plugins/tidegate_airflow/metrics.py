"""What Airflow's metrics (StatsD, Datadog or OpenTelemetry, as Airflow is set up) get of pipelines.

`tidegate.<metric>`, with the tags `pipeline`, `generation` and, of what a stage counts, `stage`. Where
StatsD is set up without tags they stand in the name: `tidegate.<pipeline>.<generation>.<stage>.<metric>`.
docs/guide.md has the list.
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
    """Whether Airflow sends metrics anywhere."""
    return any(conf.getboolean("metrics", option) for option in _BACKENDS)


def gauge(stream: Stream, metrics: Mapping[tuple[str, str], float]) -> None:
    """(stage, metric) -> value; the stage of what is the whole stream's is ''."""
    for (stage, metric), value in metrics.items():
        name, tags = _name(metric, _tags(stream, stage=stage))
        stats.gauge(name, value, tags=tags)


def count_failure(stream: Stream, task_id: str, error: str) -> None:
    """One more try of a task that has failed, by the error's class."""
    name, tags = _name(FAILURES, _tags(stream, task=task_id, error=error))
    stats.incr(name, tags=tags)


def _tags(stream: Stream, **more: str) -> dict[str, str]:
    tags = {"pipeline": stream.pipeline, "generation": str(stream.generation), **more}
    return {name: value for name, value in tags.items() if value}


def _name(metric: str, tags: dict[str, str]) -> tuple[str, dict[str, str]]:
    parts = [] if _bear_tags() else tags.values()
    return ".".join(["tidegate", *parts, metric]), tags


def _bear_tags() -> bool:
    """Whether tags arrive: plain StatsD has none, and all pipelines would be one."""
    if conf.getboolean("metrics", "statsd_datadog_enabled"):
        return True
    return not conf.getboolean("metrics", "statsd_on") or conf.getboolean(
        "metrics", "statsd_influxdb_enabled"
    )
