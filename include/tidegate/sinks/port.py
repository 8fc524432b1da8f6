"""The port: what the steps of a batch, and doctor, need of a sink, whatever its kind.

A kind is a model in `tidegate.spec.sinks`, and a folder here that implements `OpenSink`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar, cast

from tidegate.broker.log import KafkaLog
from tidegate.broker.progress import Progress
from tidegate.errors import Halted, LedgerMismatch
from tidegate.lake import Lake
from tidegate.ledger import Attempt, LeasedLedger, LedgerReader, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.settings import Settings
from tidegate.sinks.dataset import Dataset
from tidegate.sinks.outbox import Outbox
from tidegate.spec import Pipeline, SinkModel, Stage

Declared = TypeVar("Declared", bound=SinkModel)
RequireCommitted: TypeAlias = "Callable[[int, Callable[[str], bool]], None]"
"""As `OpenSink.require_committed`."""
TimestampBounds: TypeAlias = tuple[int | None, int | None]
"""The earliest and the latest timestamp that is taken, epoch ms; None: any."""


@dataclass(frozen=True)
class EarliestTimestamp:
    """The earliest timestamp, epoch ms, of a message that a sink takes and keeps now.

    `is_of_clock`: its messages have the clock of their batch, and not the timestamps of emissions. `rule`:
    why the sink takes none before that, what a batch with an earlier one comes to, and the remedies.
    """

    timestamp_ms: int
    is_of_clock: bool
    rule: str


@dataclass(frozen=True)
class SinkContext:
    """What the sinks of a stream work with.

    `log` gives the logs of a Kafka cluster by its name, and raises SettingsInvalid. `read_outbox` gives what
    a stage sends out in one attempt of a batch, `read_quarantine` what the attempt has put into quarantine;
    both raise LakeDamaged, LakeUnavailable.
    """

    settings: Settings
    ledger: LedgerReader
    stream: Stream
    lake: Lake
    log: Callable[[str | None], KafkaLog]
    read_outbox: Callable[[Plan, Stage, Attempt], Outbox]
    read_quarantine: Callable[[Plan, Attempt], Outbox]


class OpenSink(ABC, Generic[Declared]):
    """A sink of a pipeline, as a stream publishes to it. Nothing is connected before a method needs it.

    How far the stream is published stands in the sink itself, and moves together with the emissions: it is
    the sink that says what it has, and the ledger only what it must have at least.
    """

    title: ClassVar[str]
    """How people call the kind."""
    can_lose_progress: ClassVar[bool] = False
    """Whether the record of progress can be lost alone: then what the sink holds shows it, or a person
    states it."""
    gets_emissions: ClassVar[bool] = True
    """Whether it gets what a stage emits; else what is put into quarantine."""

    def __init__(self, declared: Declared, pipeline: Pipeline, context: SinkContext) -> None:
        self.declared = declared
        self.pipeline = pipeline
        self.context = context

    @property
    def name(self) -> str:
        """As the ledger has it; unique in the pipeline."""
        return self.declared.name

    @property
    def stage(self) -> Stage:
        """The stage whose emissions it gets."""
        return self.pipeline.stage_of(self.declared)

    @property
    def shard(self) -> str:
        """The stable name of who publishes."""
        return shard_name(self.context.stream, self.name)

    def outbox(self, plan: Plan, attempt: Attempt) -> Outbox:
        """What one attempt of a batch has for it. Raises LakeDamaged, LakeUnavailable."""
        return self.context.read_outbox(plan, self.stage, attempt)

    @property
    @abstractmethod
    def dataset(self) -> Dataset:
        """What it goes to, as catalogs of lineage call it. Raises SettingsInvalid."""

    def check_settings(self) -> None:
        """Find what would keep a batch from being published, before one is planned.

        That a sink does not answer now is no reason. Raises SettingsInvalid, SinkRefused.
        """

    def planned(self, before: Declared | None, may_register: bool) -> Declared:
        """The sink as a plan fixes it: with all that it would otherwise be asked for again. `before`: as the
        plan before has it; None: it does not. `may_register`: whether it may leave something where others
        see it; a dry run does not.

        Raises SchemaRefused, SchemaUnknown, SettingsInvalid, …Unavailable.
        """
        del before, may_register
        return self.declared

    def check_source(self, topic_ids: Mapping[str, str]) -> None:
        """Find out whether it goes to a topic that the pipeline reads: `topic_ids` are those of its source.

        Raises SinkRefused, TopicMissing, …Unavailable.
        """

    def check_target(self) -> None:
        """Find out whether what it goes to is there, and still what was published to. Writes nothing.

        Raises TopicMissing, TopicRecreated, …Unavailable.
        """

    def timestamp_bounds(self) -> Mapping[str, TimestampBounds]:
        """What a plan fixes: by topic the timestamps that it takes now, if others are to be quarantined.

        Raises TopicMissing, …Unavailable.
        """
        return {}

    def earliest_timestamp(self) -> EarliestTimestamp | None:
        """Return the earliest timestamp that it takes and keeps now; None: it takes any.

        Raises TopicMissing, …Unavailable.
        """
        return None

    def warnings(self) -> Iterable[str]:
        """A sentence for all that a batch may run into. Raises TopicMissing, …Unavailable."""
        return ()

    def check_outbox(self, outbox: Outbox) -> None:
        """Find what the sink would not take of a batch while it is not decided: later it is too late.

        Raises SinkRefused, TimestampRefused, SettingsInvalid, …Unavailable.
        """

    @abstractmethod
    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Send the emissions of a decided batch, or what is left of them: after any crash, and however often
        it is called, the sink has each of them once, and in order.

        `last_published`: the newest batch that the sink must have something of, as the ledger knows it; 0 if
        none. Raises ProgressLost where it has less, LedgerMismatch where it has what this ledger has not
        committed, Fenced where another is faster; ProgressUnreadable, OutcomeUnknown, TopicRecreated,
        SinkRefused, …Unavailable.
        """

    def check_progress(self) -> None:
        """Find out whether the sink still knows what was published to it. Sends nothing.

        Raises TopicMissing, TopicRecreated, ProgressLost, ProgressUnreadable, LedgerMismatch, …Unavailable.
        """

    def lost_progress(self, stated: int | None) -> Progress | None:
        """Return how far the sink is by what it holds, if its record of that is lost; None: it is not.

        Reads only. `stated`: the newest batch that the sink has as a whole, by a person's word. Raises
        ProgressLost where the sink does not show it and nobody stated it, SettingsInvalid where the statement
        cannot be true, Halted where a needed outbox is gone, LedgerMismatch where the sink has what the
        ledger has not committed.
        """
        del stated
        return None

    def restore_progress(self, stated: int | None) -> Progress | None:
        """Write what `lost_progress` returns in the place of the lost record, and return it.

        Call it under the stream's lease. A record that is not lost stays as it is, and None is returned.
        Raises what `lost_progress` raises, OutcomeUnknown.
        """
        del stated
        return None

    def require_committed(self, seq: int, is_of: Callable[[str], bool]) -> None:
        """Raise LedgerMismatch unless this ledger has committed batch `seq` as the attempt that the sink has.

        A sink calls it with its record of progress before it takes anything. `is_of`: whether the record is
        of the attempt of that name.
        """
        batch = self.context.ledger.committed_batch(self.context.stream, seq)
        if batch is None or not is_of(batch.attempt):
            raise LedgerMismatch(
                f"{self.name} has batch {seq} of {self.context.stream} as an attempt that this ledger has "
                "not committed: another ledger has published to it, or this one was restored from a backup",
                "Use the newest copy of the ledger, or restore a newer backup; nothing was sent. If there is "
                f"none: {self.context.stream.recover_command('send-again')}",
            )

    @abstractmethod
    def restart_effect(self, seq: int) -> str:
        """Return a sentence on what becomes of what it has of batches after `seq`, if it is restarted."""

    @abstractmethod
    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Let the sink say that it has all batches up to `seq`, and none after it, whatever it says now.

        Whoever still publishes is shut out. Return the sink's identity, where the ledger keeps one. Raises
        TopicMissing, ProgressUnreadable, Fenced, OutcomeUnknown, …Unavailable.
        """

    @abstractmethod
    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Shut out whoever still publishes batch `seq`, and let the sink say that it has the batch.

        Return how many messages or rows of the batch the sink has. A sink that is further stays as it is.
        Raises as `restart_after`.
        """

    def published(self, seq: int) -> tuple[OpenSink[Declared], Outbox] | None:
        """What a committed batch had for it, and the sink as it was declared then; None if that was nothing,
        is withheld from it, or was given up.

        Raises Halted for a batch that may have had something for it, and of which the ledger keeps no more
        than its commit.
        """
        ledger, stream = self.context.ledger, self.context.stream
        if not ledger.charge(stream.pipeline).goes_out(stream.generation, seq):
            return None
        if any((given_up.seq, given_up.sink) == (seq, self.name) for given_up in ledger.given_up(stream)):
            return None
        plan, attempt = ledger.plan(stream, seq), ledger.attempt(stream, seq)
        if plan is None or attempt is None:
            self._require_nothing_published(seq)
            return None
        pipeline = planned_pipeline(plan)
        for declared in pipeline.outputs:
            if declared.name == self.name:  # which begins with the kind
                sink = type(self)(cast("Declared", declared), pipeline, self.context)
                outbox = sink.outbox(plan, attempt)
                return (sink, outbox) if outbox.emitted else None
        return None

    def batches_with_output(self, seqs: range) -> list[int]:
        """Return those of the batches that had something for it."""
        return [seq for seq in seqs if self.published(seq) is not None]

    def publish_again(self, lease: LeasedLedger, seqs: range) -> list[int]:
        """Publish those of the batches that had something for it, and return them. It has all before them."""
        again, last = [], seqs.start - 1
        for seq in seqs:
            missing = self.published(seq)
            if missing is not None:
                sink, outbox = missing
                sink.publish(lease, outbox, last)
                lease.add_publication(seq, self.name, outbox.emitted)
                again.append(seq)
                last = seq
        return again

    def _attempt_name(self, seq: int) -> str:
        """Return the name of the attempt that a batch was committed with; "" where the ledger has none."""
        attempt = self.context.ledger.attempt(self.context.stream, seq) if seq else None
        return attempt.name if attempt is not None else ""

    def _require_nothing_published(self, seq: int) -> None:
        """Batches after the last that the sink got something of had nothing for it."""
        stream = self.context.stream
        if 0 < seq <= self.context.ledger.last_published(stream, self.name):
            raise Halted(
                f"Batch {seq} of {stream} would have to be compared with what {self.name} has, or sent "
                "again; it is older than TIDEGATE_TIME_TRAVEL, and the ledger no longer has its plan",
                "Restore the sink from a newer backup; or state which is the newest batch that it has as a "
                "whole: "
                f"{stream.recover_command('restore-progress')} --progress {self.name}=BATCH",
            )


def shard_name(stream: Stream, sink: str) -> str:
    """The stable name of who publishes: transactional id, key of the progress record, Delta application."""
    return f"tidegate-{stream.pipeline}-g{stream.generation}-{sink}"
