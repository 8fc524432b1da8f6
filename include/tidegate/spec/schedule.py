"""`schedule`: cron, or assets of Airflow's whose updates start runs, or both."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic import ValidationInfo as Info

from tidegate.spec.cron import PRESETS, cron_mistake
from tidegate.spec.mistakes import listed, mistake
from tidegate.spec.scope import Model, distinct, filled, scope_of

OWN_ASSETS = "tidegate://"
"""What the URIs of the assets begin with that pipelines publish; the pipeline's name follows."""

_ASSET = re.compile(r"\S{1,1500}")


def asset_uri(pipeline: str) -> str:
    """The asset that a pipeline publishes, by any of its generations."""
    return f"{OWN_ASSETS}{pipeline}"


def _check_asset(asset: str, info: Info) -> str:
    """A URI, or a name, as Airflow keeps them."""
    if not _ASSET.fullmatch(asset) or asset.startswith("airflow:"):
        fix = f"Write a URI without blanks, such as `{asset_uri('orders')}` for the pipeline `orders`."
        raise mistake(f"{asset!r} is not an asset's URI or name", fix)
    own = scope_of(info).pipeline
    if own is not None and asset.rstrip("/") == asset_uri(own):
        fix = "Name what another DAG publishes."
        raise mistake("that is what this pipeline publishes itself: each run would start the next one", fix)
    return asset


def _check_cron(text: str) -> str:
    if (wrong := cron_mistake(text)) is not None:
        fix = f"Write cron such as `*/5 * * * *`, one of {listed(PRESETS)}, or null for no schedule."
        raise mistake(wrong, fix)
    return text


Cron = Annotated[str, AfterValidator(_check_cron)]


class AssetSchedule(Model):
    """A run when `all` or `any` of the assets were updated since the last one; with `cron`, also by that."""

    assets: Annotated[
        tuple[Annotated[str, AfterValidator(_check_asset)], ...],
        BeforeValidator(filled),
        AfterValidator(distinct),
    ] = Field(description="URIs or names of assets, such as `tidegate://orders` of the pipeline `orders`.")
    when: Literal["all", "any"] = Field(
        default="all", description="Whether a run waits for updates of all of them, or of any."
    )
    cron: Cron | None = Field(default=None, description="Runs that start by time as well.")


Schedule = Annotated[
    Annotated[Cron, Tag("cron")] | Annotated[AssetSchedule, Tag("assets")],
    Discriminator(lambda written: "assets" if isinstance(written, (dict, AssetSchedule)) else "cron"),
]
