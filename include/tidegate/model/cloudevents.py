"""`cloudevents` of a sink: the mode and the attributes of the events that it sends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic import ValidationInfo as Info

from tidegate.model.mistakes import mistake
from tidegate.model.names import matching
from tidegate.model.scope import Model

_check_type = matching(
    re.compile(r"[A-Za-z0-9._~/:-]{1,200}"),
    "is not a type of events",
    "Write for example `com.example.stock.changed`.",
    most=40,
)
# a URI or a relative reference
_check_source = matching(
    re.compile(r"[A-Za-z0-9._~/:?#@!$&'()*+,;=%-]{1,200}"),
    "is not a URI",
    "Write for example `/shop/stock` or `urn:shop:stock`.",
    most=40,
)
EXAMPLES: Mapping[str, str] = {
    "cloudevents": "cloudevents: {mode: binary, type: com.example.stock.changed, source: /shop/stock}",
    "cloudevents.mode": "mode: binary",
    "cloudevents.type": "type: com.example.stock.changed",
    "cloudevents.source": "source: /shop/stock",
}
"""How a sink's field is written in a pipeline file, by its path."""


class CloudEvents(Model):
    """The mode and the attributes of a sink's events."""

    mode: Literal["structured", "binary"] = Field(
        default="structured",
        description="Whether an event is one JSON object, or its data, with attributes as headers.",
    )
    type: Annotated[str, AfterValidator(_check_type)] | None = Field(
        default=None, description="The events' `type`. Null: `tidegate.PIPELINE.STAGE`."
    )
    source: Annotated[str, AfterValidator(_check_source)] | None = Field(
        default=None, description="The events' `source`. Null: `/tidegate/PIPELINE/STAGE`."
    )


def check_cloudevents(declared: CloudEvents | None, info: Info) -> CloudEvents | None:
    """Return the mode and the attributes of a sink that sends events: the default ones if none are written.

    Raises a mistake if the sink sends no events.
    """
    format_ = info.data.get("format")
    if declared is not None and format_ not in (None, "cloudevents"):
        raise mistake(f"`format: {format_}` has no attributes of events", "Write `format: cloudevents`.")
    return declared or (CloudEvents() if format_ == "cloudevents" else None)
