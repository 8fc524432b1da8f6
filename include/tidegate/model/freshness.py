"""How soon emissions must be out: the field `freshness`."""

from __future__ import annotations

from pydantic import Field

from tidegate.model.names import Duration
from tidegate.model.scope import Model


class FreshnessRule(Model):
    """The bound of the time from an event to the publication of what it caused. It stops nothing."""

    p95_ms: Duration = Field(
        alias="p95",
        description="95 % of a batch's emissions must be out so soon after their timestamp; otherwise "
        "tidegate alerts: in the log, by the metric `freshness.alert`, and by `on_freshness`.",
    )
