"""The topic of dead letters, which gets all records that a batch puts into quarantine."""

from __future__ import annotations

from tidegate.spec.connection import Connection, qualified
from tidegate.spec.sinks import SinkModel


class DeadLetterTopic(SinkModel):
    """The topic that `quarantine` declares. It is published to like a sink, and gets quarantined records of
    all stages.

    The fields `stage` and `with_key` of a sink have no effect on it.
    """

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
