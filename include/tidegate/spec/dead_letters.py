"""The topic of dead letters: where what a batch puts into quarantine goes, too."""

from __future__ import annotations

from tidegate.spec.connection import Connection, qualified
from tidegate.spec.sinks import SinkModel


class DeadLetterTopic(SinkModel):
    """What `quarantine` declares. It is published to as a sink is, but gets what is in quarantine, of all
    stages: `stage` and `with_key` say nothing of it.
    """

    connection: str | None
    topic: str

    @property
    def name(self) -> str:
        """Unique in the pipeline: no kind of sink is called so."""
        return f"dead-letters:{self.target}"

    @property
    def target(self) -> str:
        """The topic, and which cluster's."""
        return qualified(self.connection, self.topic)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The cluster."""
        return (Connection("kafka", self.connection),)
