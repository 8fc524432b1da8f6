"""`quarantine` and `late`: how many records of a batch may be unusable, or late, before tidegate alerts or
stops the batch; and a topic that gets unusable records, too.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, StrictInt, WithJsonSchema
from pydantic import ValidationInfo as Info

from tidegate.kernel.within import Amount
from tidegate.model import names
from tidegate.model.connection import Connection, qualified
from tidegate.model.mistakes import mistake, shown
from tidegate.model.names import Duration
from tidegate.model.scope import Model, Topic, scope_of
from tidegate.sinks.model import SinkModel, not_a_source


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
    """The largest share or number of a batch's records that may be in quarantine, or late."""

    share: Share | None = Field(
        default=None, description="A share of the records that were read, such as `1%`. Null: any share."
    )
    count: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="A number of records. Null: any number."
    )

    def most(self, came_in: int) -> int | None:
        """Return the most records that may be in quarantine, or late, of all that came in; None for any
        number.
        """
        share = None if self.share is None else int(self.share.amount * came_in / 100)
        return min((most for most in (self.count, share) if most is not None), default=None)

    def passed_by(self, records: int, came_in: int) -> bool:
        """Return whether a number of records exceeds the share or the count.

        Args:
            records: The records in quarantine, or late.
            came_in: All records of the batch.
        """
        most = self.most(came_in)
        return most is not None and records > most


def _bounded(bound: RecordBound | None) -> RecordBound | None:
    if bound is not None and bound.share is None and bound.count is None:
        raise mistake("neither a share nor a number is given", "Write for example `{share: 1%}`.")
    return bound


def _of_its_own(topic: str | None, info: Info) -> str | None:
    """Check that the topic is neither a source nor a sink: their readers would get dead letters."""
    connection = info.data.get("connection")
    if topic is None:
        if connection is not None:
            raise mistake("`connection` says where a topic is, and there is none", "Write `topic:`, too.")
        return None
    not_a_source(topic, info)
    # `quarantine` is read after `sinks`, so all of them are known.
    if f"kafka:{qualified(connection, topic)}" in scope_of(info).sinks:
        raise mistake(f"`{topic}` is also a sink: its consumers expect emissions", "Use another topic.")
    return topic


class DeadLetterTopic(SinkModel):
    """The topic that `quarantine` declares. It is published to like a sink, and gets quarantined records of
    all stages.

    The fields `stage` and `with_key` of a sink have no effect on it.
    """

    publisher = "tidegate.sinks.kafka.dead_letters"

    connection: str | None
    topic: str

    @property
    def name(self) -> str:
        """A name that is unique in the pipeline: no kind of sink begins with `dead-letters`."""
        return f"dead-letters:{self.target}"

    @property
    def target(self) -> str:
        """The topic, with its connection if it has one."""
        return qualified(self.connection, self.topic)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connection of the Kafka cluster."""
        return (Connection("kafka", self.connection),)


class QuarantineRule(Model):
    """The bounds for records in quarantine per batch, a topic that gets them, and how long they are kept.

    The bounds do not apply to a batch that replays records.
    """

    alert: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None,
        description="Beyond it, tidegate alerts: in the log and by the metric `quarantine.alert`.",
    )
    stop: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it the batch halts, and nothing of it is visible."
    )
    connection: Annotated[str, AfterValidator(names.check_kafka_connection)] | None = Field(
        default=None,
        description="The Kafka cluster of `topic`, by its name. Null: TIDEGATE_KAFKA, also if the source "
        "has a "
        "connection.",
    )
    topic: Annotated[Topic | None, AfterValidator(_of_its_own)] = Field(
        default=None, description="A topic of dead letters: it gets each record in quarantine exactly once."
    )

    keep_ms: Duration | None = Field(
        alias="keep",
        default=None,
        description="How long records in quarantine are kept at least. Null: forever.",
    )

    @property
    def dead_letters(self) -> DeadLetterTopic | None:
        """The topic of dead letters; None if there is none."""
        if self.topic is None:
            return None
        return DeadLetterTopic(connection=self.connection, topic=self.topic)


class OutboxRule(Model):
    """The time for which the emissions of batches are kept."""

    keep_ms: Duration = Field(
        alias="keep",
        description="At least how long. They are also kept while the state after the batch can be read "
        "(TIDEGATE_TIME_TRAVEL), and until they are published.",
    )


class LateRule(Model):
    """The bounds for late records per batch. They do not apply to a batch that replays records."""

    alert: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it, tidegate alerts: in the log and by the metric `late.alert`."
    )
    stop: Annotated[RecordBound | None, AfterValidator(_bounded)] = Field(
        default=None, description="Beyond it the batch halts, and nothing of it is visible."
    )
