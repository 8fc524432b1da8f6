"""`quarantine`: how much of a batch may be unusable before somebody is told, or the batch stops."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, StrictInt, WithJsonSchema

from tidegate.spec.equal import Amount
from tidegate.spec.mistakes import mistake, shown
from tidegate.spec.scope import Model


def _read_share(written: Any) -> Amount:
    text = written.strip() if isinstance(written, str) else ""
    try:
        percent = Decimal(text.removesuffix("%")) if text.endswith("%") else Decimal("NaN")
    except InvalidOperation:
        percent = Decimal("NaN")
    if not percent.is_finite() or not 0 <= percent <= 100:
        raise mistake(f"{shown(written)} is not a share", "Write a percentage from 0% to 100%: `share: 1%`.")
    return Amount(percent, percent=True)


Share = Annotated[InstanceOf[Amount], BeforeValidator(_read_share), WithJsonSchema({"type": "string"})]


class QuarantineBound(Model):
    """So much a batch may put into quarantine: what is more passes the bound."""

    share: Share | None = Field(
        default=None, description="Of the records that came in, such as `1%`. Null: any share."
    )
    count: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="So many records. Null: any number."
    )

    def passed_by(self, quarantined: int, came_in: int) -> bool:
        """Whether so many of the records that came in are more than either of both allows."""
        too_many = self.count is not None and quarantined > self.count
        share = self.share
        return too_many or (share is not None and quarantined * 100 > share.amount * came_in)


def _bounded(bound: QuarantineBound | None) -> QuarantineBound | None:
    if bound is not None and bound.share is None and bound.count is None:
        raise mistake("neither a share nor a number is given", "Write for example `{share: 1%}`.")
    return bound


class QuarantineRule(Model):
    """What comes of a batch that puts much into quarantine. A batch that replays is not asked."""

    alert: Annotated[QuarantineBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it, it is told: in the log and as the metric `quarantine.alert`."
    )
    stop: Annotated[QuarantineBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it the batch halts, and nothing of it is visible."
    )
