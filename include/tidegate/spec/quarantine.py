"""`quarantine` and `late`: how much of a batch may be unusable, or late, before somebody is told, or the
batch stops; and where what is unusable goes, beside the lake.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, StrictInt, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.spec import names
from tidegate.spec.connection import qualified
from tidegate.spec.dead_letters import DeadLetterTopic
from tidegate.spec.durations import Duration
from tidegate.spec.equal import Amount
from tidegate.spec.mistakes import mistake, shown
from tidegate.spec.scope import Model, Topic, scope_of
from tidegate.spec.sinks import not_a_source


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


class RecordBound(Model):
    """How much of a batch may be in quarantine, or late: what is more passes the bound."""

    share: Share | None = Field(
        default=None, description="Of the records that came in, such as `1%`. Null: any share."
    )
    count: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="So many records. Null: any number."
    )

    def passed_by(self, records: int, came_in: int) -> bool:
        """Return whether so many of the records that came in are more than either of both allows."""
        too_many = self.count is not None and records > self.count
        share = self.share
        return too_many or (share is not None and records * 100 > share.amount * came_in)


def _bounded(bound: RecordBound | None) -> RecordBound | None:
    if bound is not None and bound.share is None and bound.count is None:
        raise mistake("neither a share nor a number is given", "Write for example `{share: 1%}`.")
    return bound


def _of_its_own(topic: str | None, info: Info) -> str | None:
    """Neither a source nor a sink: what is read there would be something else than what is meant."""
    connection = info.data.get("connection")
    if topic is None:
        if connection is not None:
            raise mistake("`connection` says where a topic is, and there is none", "Write `topic:`, too.")
        return None
    not_a_source(topic, info)
    if f"kafka:{qualified(connection, topic)}" in scope_of(info).sinks:
        raise mistake(f"`{topic}` is also a sink: its consumers expect emissions", "Use another topic.")
    return topic


class QuarantineRule(Model):
    """What comes of a batch that puts much into quarantine, which a batch that replays is not asked; and
    where all that is put there goes, too.
    """

    alert: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it, it is told: in the log and as the metric `quarantine.alert`."
    )
    stop: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it the batch halts, and nothing of it is visible."
    )
    connection: Annotated[str, AfterValidator(names.check_kafka_connection)] | None = Field(
        default=None,
        description="The Kafka cluster of `topic`, by its name. Null: TIDEGATE_KAFKA, whatever the source's.",
    )
    topic: Annotated[Topic | None, AfterValidator(_of_its_own)] = Field(
        default=None,
        description="A topic of dead letters: it gets all that is put into quarantine, exactly once.",
    )

    keep_ms: Duration | None = Field(
        alias="keep",
        default=None,
        description="How long records in quarantine are kept at least. Null: for good.",
    )

    @property
    def dead_letters(self) -> DeadLetterTopic | None:
        """The topic of dead letters, if there is one."""
        if self.topic is None:
            return None
        return DeadLetterTopic(connection=self.connection, topic=self.topic)


class LateRule(Model):
    """What comes of a batch in which many records are late, which a batch that replays is not asked."""

    alert: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it, it is told: in the log and as the metric `late.alert`."
    )
    stop: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it the batch halts, and nothing of it is visible."
    )
