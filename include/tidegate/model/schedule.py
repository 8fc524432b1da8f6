"""What starts runs (`schedule`), and how soon emissions must be out (`freshness`)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, StrictInt, Tag
from pydantic import ValidationInfo as Info

from tidegate.model.cron import PRESETS, cron_mistake, longest_wait
from tidegate.model.mistakes import listed, mistake
from tidegate.model.names import Duration
from tidegate.model.scope import Model, distinct, require_filled, scope_of

OWN_ASSETS = "tidegate://"
"""The prefix of the URIs of assets that pipelines publish; the pipeline's name follows."""

_ASSET = re.compile(r"\S{1,1500}")


def asset_uri(pipeline: str) -> str:
    """Return the URI of the asset that all generations of a pipeline publish.

    >>> asset_uri("orders")
    'tidegate://orders'
    """
    return f"{OWN_ASSETS}{pipeline}"


def _check_asset(asset: str, info: Info) -> str:
    """Return the URI or name of an asset if Airflow accepts it.

    Raises a mistake for the pipeline's own asset.
    """
    if not _ASSET.fullmatch(asset) or asset.startswith("airflow:"):
        fix = f"Write a URI without blanks, such as `{asset_uri('orders')}` for the pipeline `orders`."
        raise mistake(f"{asset!r} is not an asset's URI or name", fix)
    own = scope_of(info).pipeline
    # Airflow normalizes URIs, and treats one with a slash at the end as the same.
    if own is not None and asset.rstrip("/") == asset_uri(own):
        fix = "Name an asset that another DAG publishes."
        raise mistake("this pipeline publishes that asset itself: each run would start the next one", fix)
    return asset


def _check_cron(text: str) -> str:
    if (wrong := cron_mistake(text)) is not None:
        fix = f"Write cron such as `*/5 * * * *`, one of {listed(PRESETS)}, or null for no schedule."
        raise mistake(wrong, fix)
    return text


Cron = Annotated[str, AfterValidator(_check_cron)]


class AssetSchedule(Model):
    """Start a run when `all` or `any` of the assets were updated since the last run; with `cron`,
    also by time.
    """

    assets: Annotated[
        tuple[Annotated[str, AfterValidator(_check_asset)], ...],
        BeforeValidator(require_filled),
        AfterValidator(distinct),
    ] = Field(description="URIs or names of assets, such as `tidegate://orders` of the pipeline `orders`.")
    when: Literal["all", "any"] = Field(
        default="all", description="Whether a run waits for updates of all assets, or of any."
    )
    cron: Cron | None = Field(default=None, description="Runs that start by time as well.")


class Backlog(Model):
    """Start a run when `records` wait in the topics, or when the oldest has waited for `or_after`."""

    records: Annotated[StrictInt, Field(ge=1, lt=2**63)] = Field(
        description="Start a run when so many records wait to be read."
    )
    or_after_ms: Duration = Field(
        alias="or_after", description="Start a run when the oldest of them has waited so long."
    )


class DataSchedule(Model):
    """Start a run when records of the source wait; with `cron`, also by time."""

    on_data: Backlog = Field(description="How many records may wait, and how long, before a run starts.")
    cron: Cron | None = Field(default=None, description="Runs that start by time as well.")


def longest_schedule_gap(schedule: str | AssetSchedule | DataSchedule | None) -> timedelta | None:
    """Return the longest time that records wait for a run; None if neither the time nor waiting records start
    runs.
    """
    if schedule is None or isinstance(schedule, str):
        return longest_wait(schedule)
    return longest_wait(
        schedule.cron, schedule.on_data.or_after_ms if isinstance(schedule, DataSchedule) else None
    )


def _form(written: object) -> str:
    """Return which form of a schedule is written."""
    if isinstance(written, DataSchedule) or (isinstance(written, dict) and "on_data" in written):
        return "on_data"
    return "assets" if isinstance(written, (dict, AssetSchedule)) else "cron"


Schedule = Annotated[
    Annotated[Cron, Tag("cron")]
    | Annotated[AssetSchedule, Tag("assets")]
    | Annotated[DataSchedule, Tag("on_data")],
    Discriminator(_form),
]


class FreshnessRule(Model):
    """The bound of the time from an event to the publication of what it caused. It stops nothing."""

    p95_ms: Duration = Field(
        alias="p95",
        description="95 % of a batch's emissions must be out so soon after their timestamp; otherwise "
        "tidegate alerts: in the log, by the metric `freshness.alert`, and by `on_freshness`.",
    )
