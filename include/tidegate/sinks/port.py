"""The port of sinks: what the batch steps, recovery and doctor need of a sink of any kind.

A kind is a folder here: a model, and a class that implements `OpenSink`."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

from sqlalchemy import make_url

from tidegate.errors import Halted, LedgerMismatch, SinkAhead
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.progress import Progress
from tidegate.kafka.shard import SendShards, send_here
from tidegate.ledger import Attempt, Expiring, LeasedLedger, LedgerReader, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.settings import Settings
from tidegate.sinks.model import SinkModel
from tidegate.sinks.outbox import Outbox
from tidegate.storage import Lake

_PORTS = {"kafka": 9092, "postgresql": 5432}
_SCHEMES = {"postgresql": "postgres"}


class Dataset(NamedTuple):
    """A namespace such as `kafka://broker:9092`, and a name such as `stock`."""

    namespace: str
    name: str


def topic_dataset(servers: str, topic: str) -> Dataset:
    """Return the dataset of a topic; the first bootstrap server names the cluster.

    >>> topic_dataset("kafka-1,kafka-2:9093", "stock")
    Dataset(namespace='kafka://kafka-1:9092', name='stock')
    """
    # OpenLineage names a cluster by one of its bootstrap servers.
    server = servers.split(",")[0].strip()
    host, _, port = server.partition(":")
    return Dataset(f"kafka://{host}:{port or _PORTS['kafka']}", topic)


def table_dataset(url: str, table: str) -> Dataset:
    """Return the dataset of a table of the database at a SQLAlchemy URL.

    >>> table_dataset("postgresql+psycopg://me:secret@db/shop", "reports.stock")
    Dataset(namespace='postgres://db:5432', name='shop.reports.stock')
    >>> table_dataset("snowflake://me:secret@account/shop/public", "stock")
    Dataset(namespace='snowflake://account', name='shop.public.stock')
    """
    # Only parts of the URL go into the name: user and password stay out.
    database = make_url(url)
    kind = database.get_backend_name()
    # SQLite has a file in place of a server.
    if database.host is None:
        return Dataset(f"{kind}://{database.database or ''}", table)
    # the URL of Snowflake has a schema after the database
    name, _, schema = (database.database or "").partition("/")
    schema = schema or ("public" if kind == "postgresql" else "")
    parts = [name, table] if "." in table or not schema else [name, schema, table]
    port = database.port or _PORTS.get(kind)
    server = f"{database.host}:{port}" if port else database.host
    return Dataset(f"{_SCHEMES.get(kind, kind)}://{server}", ".".join(parts))


def folder_dataset(uri: str) -> Dataset:
    """Return the dataset of a folder in a file system or an object store.

    >>> folder_dataset("s3://lake/shop/stock")
    Dataset(namespace='s3://lake', name='shop/stock')
    """
    place = urlsplit(uri)
    if place.scheme in ("", "file"):
        return Dataset("file", place.path)
    return Dataset(f"{place.scheme}://{place.netloc}", place.path.lstrip("/"))


Declared = TypeVar("Declared", bound=SinkModel)
RequireCommitted: TypeAlias = "Callable[[int, Callable[[str], bool]], None]"
"""The type of `OpenSink.require_committed`."""
TimestampBounds: TypeAlias = tuple[int | None, int | None]
"""The earliest and the latest timestamp that a sink accepts, in epoch ms; None: no limit."""


@dataclass(frozen=True)
class EarliestTimestamp:
    """The earliest timestamp of a message that a sink accepts and retains now.

    Args:
        timestamp_ms: Epoch ms.
        is_of_clock: Whether messages have the clock of their batch instead of the timestamps of emissions.
        rule: Why the sink accepts no earlier timestamp, what happens to a batch that has one, and the
            remedies.
    """

    timestamp_ms: int
    is_of_clock: bool
    rule: str


@dataclass(frozen=True)
class SinkContext:
    """The objects that the sinks of a stream work with.

    Args:
        log: Connection name -> log of the Kafka cluster. Raises SettingsInvalid.
        read_outbox: Returns what a stage emitted in an attempt. Raises LakeDamaged, LakeUnavailable.
        read_quarantine: Returns what an attempt put into quarantine. Raises LakeDamaged, LakeUnavailable.
        send_shards: Sends the shards of a large batch, in this process or in Spark tasks.
    """

    settings: Settings
    ledger: LedgerReader
    stream: Stream
    lake: Lake
    log: Callable[[str | None], KafkaLog]
    read_outbox: Callable[[Plan, Stage, Attempt], Outbox]
    read_quarantine: Callable[[Plan, Attempt], Outbox]
    send_shards: SendShards = send_here


class OpenSink(ABC, Generic[Declared]):
    """A sink of a pipeline, for one stream. It does not connect before a method needs it.

    The progress of publishing is stored in the sink itself, and advances in one transaction with the
    emissions. The sink decides what it has; the ledger only knows what the sink must have at least.
    """

    title: ClassVar[str]
    """The name of the kind, for people."""
    can_lose_progress: ClassVar[bool] = False
    """Whether the progress record alone can be lost. It is then derived from the sink's content, or stated
    by a user.
    """
    gets_emissions: ClassVar[bool] = True
    """Whether the sink gets emissions; if not, it gets what is put into quarantine."""

    def __init__(self, declared: Declared, pipeline: Pipeline, context: SinkContext) -> None:
        self.declared = declared
        self.pipeline = pipeline
        self.context = context

    @property
    def name(self) -> str:
        """The sink's name in the ledger, unique in the pipeline."""
        return self.declared.name

    @property
    def stage(self) -> Stage:
        """The stage whose emissions the sink gets."""
        return self.pipeline.stage_of(self.declared)

    @property
    def sends_shards(self) -> bool:
        """Whether several tasks can send a large batch at the same time. Raises SettingsInvalid."""
        return False

    @property
    def shard(self) -> str:
        """The stable name of the publisher; see `shard_name`."""
        return shard_name(self.context.stream, self.name)

    def outbox(self, plan: Plan, attempt: Attempt) -> Outbox:
        """Return what one attempt of a batch has for the sink. Raises LakeDamaged, LakeUnavailable."""
        return self.context.read_outbox(plan, self.stage, attempt)

    @property
    @abstractmethod
    def dataset(self) -> Dataset:
        """The sink's topic, table or folder, as catalogs of lineage name it. Raises SettingsInvalid."""

    def check_settings(self) -> None:
        """Check, before a batch is planned, for settings that would prevent publishing it.

        A sink that does not answer now is no error. Raises SettingsInvalid, SinkRefused.
        """

    def planned(self, before: Declared | None, may_register: bool) -> Declared:
        """Return the sink as a plan fixes it, with all that a later step would otherwise have to look up.

        Args:
            before: The sink in the previous plan; None if that plan does not have it.
            may_register: Whether the sink may register something that others see, such as a schema. A dry run
                may not.

        Raises SchemaRefused, SchemaUnknown, SettingsInvalid, …Unavailable.
        """
        del before, may_register
        return self.declared

    def check_source(self, topic_ids: Mapping[str, str]) -> None:
        """Check that the sink does not write to a topic that the pipeline reads.

        Args:
            topic_ids: The ids of the source's topics, by name.

        Raises SinkRefused, TopicMissing, …Unavailable.
        """

    def check_target(self) -> None:
        """Check that the sink's topic or table exists, and is the one that was published to. Writes
        nothing.

        Raises TopicMissing, TopicRecreated, …Unavailable.
        """

    def timestamp_bounds(self) -> Mapping[str, TimestampBounds]:
        """Return the timestamps that each topic accepts now, for the plan, if others must go into
        quarantine.

        Raises TopicMissing, …Unavailable.
        """
        return {}

    def earliest_timestamp(self) -> EarliestTimestamp | None:
        """Return the earliest timestamp that the sink accepts and retains now; None if it accepts any.

        Raises TopicMissing, …Unavailable.
        """
        return None

    def warnings(self) -> Iterable[str]:
        """Return a sentence for each problem that a batch may meet. Raises TopicMissing, …Unavailable."""
        return ()

    def refused(self, outbox: Outbox, most: int | None) -> Mapping[int, str]:
        """Return the emissions that the sink refuses and that go into quarantine: the place in the outbox ->
        why. Changes nothing.

        The outbox is then asked again without them: other emissions can be refused only now. Nothing is
        returned when the sink takes all that the outbox still has.

        Args:
            most: The most emissions that may be refused: with more of them, the batch stops, and the sink
                need not look for others. None: any number.

        Raises SinkRefused, SettingsInvalid, …Unavailable.
        """
        del outbox, most
        return {}

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that the sink accepts a batch, before the batch is decided and can no longer change.

        Raises SinkRefused, TimestampRefused, SettingsInvalid, …Unavailable.
        """

    @abstractmethod
    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Send the emissions of a decided batch, or the rest of them.

        After any crash, and after any number of calls, the sink has each emission once, in order.

        Args:
            last_published: The newest batch that the sink must have, by the ledger; 0 if none.

        Raises ProgressLost if the sink has less, LedgerMismatch if it has a batch that this ledger has not
        committed, Fenced if another publisher was faster; ProgressUnreadable, OutcomeUnknown, TopicRecreated,
        SinkRefused, …Unavailable.
        """

    def deliver(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Publish the emissions of a decided batch; if it is the batch of an erasure, erase its keys.

        Raises what `publish` and `erase` raise.
        """
        send = self.publish if outbox.plan.erasure is None else self.erase
        send(lease, outbox, last_published)

    def erase(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Remove the keys of an erasure from the sink. The emissions of its batch delete them.

        A sink that keeps earlier emissions of a key removes these; others publish the deletions. Exactly once
        as `publish`, and raises the same errors.
        """
        self.publish(lease, outbox, last_published)

    @abstractmethod
    def erasure_effect(self) -> str:
        """Return a sentence on what an erasure does to keys in the sink, and on what it cannot remove."""

    def check_progress(self) -> None:
        """Check that the sink still has what was published to it. Sends nothing.

        Raises TopicMissing, TopicRecreated, ProgressLost, ProgressUnreadable, LedgerMismatch, …Unavailable.
        """

    def lost_progress(self, stated: int | None) -> Progress | None:
        """Return the sink's progress by its content, if its progress record is lost; None if it is not
        lost. Writes nothing.

        Args:
            stated: The newest batch that the sink has completely, as a user states it; None if no user did.

        Raises ProgressLost if the sink's content does not show it and no user stated it, SettingsInvalid if
        the statement cannot be true, Halted if a needed outbox no longer exists, LedgerMismatch if the sink
        has what the ledger has not committed.
        """
        del stated
        return None

    def restore_progress(self, stated: int | None) -> Progress | None:
        """Write what `lost_progress` returns as the progress record, and return it.

        Call it under the stream's lease. If the record is not lost, it stays unchanged, and None is returned.

        Raises what `lost_progress` raises, and OutcomeUnknown.
        """
        del stated
        return None

    def require_committed(self, seq: int, is_of: Callable[[str], bool]) -> None:
        """Check that this ledger has committed batch `seq` as the attempt that the sink has.

        A sink calls it with its progress record before it accepts anything.

        Args:
            is_of: Returns whether the record belongs to the attempt with this name.

        Raises LedgerMismatch if it has not.
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
        """Return a sentence on the fate of what the sink has of batches after `seq`, if it is restarted."""

    def restart_effect_on_rows(self, seq: int, *, overwrites: bool) -> str:
        """Return the sentence of a sink of rows. `overwrites`: a row replaces the one of its key."""
        if overwrites:
            return f"{self.name}: rows of batches after {seq} are written over when they come again."
        stream = self.context.stream
        return f"{self.name}: rows of {stream} of batches after {seq} are deleted, before they come again."

    @abstractmethod
    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Make the sink's progress say that it has all batches up to `seq` and none after it.

        A process that still publishes is fenced. Return the sink's identity, if the ledger stores one.

        Raises TopicMissing, ProgressUnreadable, Fenced, OutcomeUnknown, …Unavailable.
        """

    @abstractmethod
    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Fence any process that still publishes batch `seq`, and make the sink's progress say that it has
        the batch.

        Return how many messages or rows of the batch the sink has. A sink with later batches stays unchanged.

        Raises what `restart_after` raises.
        """

    def published(self, seq: int) -> tuple[OpenSink[Declared], Outbox] | None:
        """Return what a committed batch had for the sink, and the sink as it was declared then.

        Return None if that was nothing, is withheld, or was given up.

        Raises Halted if the batch may have had something, but it is no longer kept.
        """
        ledger, stream = self.context.ledger, self.context.stream
        # A withheld batch was never sent, so no trace of it has to be looked for.
        if not ledger.charge(stream.pipeline).goes_out(stream.generation, seq):
            return None
        if any((given_up.seq, given_up.sink) == (seq, self.name) for given_up in ledger.given_up(stream)):
            return None
        # Maintenance removes plans of batches that are published and older than time travel goes.
        plan, attempt = ledger.plan(stream, seq), ledger.attempt(stream, seq)
        kind: Expiring = "outbox" if self.gets_emissions else "quarantine"
        if plan is None or attempt is None or seq <= ledger.expired(stream, kind).seq:
            self._require_nothing_published(seq)
            return None
        pipeline = planned_pipeline(plan)
        for declared in pipeline.outputs:
            if declared.name == self.name:  # equal names have the same kind, since a name begins with it
                sink = type(self)(cast("Declared", declared), pipeline, self.context)
                outbox = sink.outbox(plan, attempt)
                return (sink, outbox) if outbox.emitted else None
        return None

    def batches_with_output(self, seqs: range) -> list[int]:
        """Return those of the batches that had something for the sink. Raises Halted as `published`."""
        return [seq for seq in seqs if self.published(seq) is not None]

    def publish_again(self, lease: LeasedLedger, seqs: range) -> list[int]:
        """Publish those of the batches that had something for the sink, and return them.

        The sink must have all batches before `seqs`. Raises what `published` and `publish` raise.
        """
        # `last` is what the sink must have at least: batches without emissions leave no trace in it.
        again, last = [], seqs.start - 1
        erased = last
        for seq in seqs:
            missing = self.published(seq)
            if missing is not None:
                sink, outbox = missing
                sink.deliver(lease, outbox, last)
                lease.add_publication(seq, self.name, outbox.emitted)
                again.append(seq)
                last = seq
            elif lease.publications(lease.stream, seq).get(self.name):
                erased = seq  # it had emissions, which were erased since
        if erased > last:
            # By the ledger the sink has this batch, so its progress must say so.
            self.restart_after(lease, erased)
        return again

    def _attempt_name(self, seq: int) -> str:
        """Return the name of the attempt that a batch was committed with; "" if the ledger has none."""
        attempt = self.context.ledger.attempt(self.context.stream, seq) if seq else None
        return attempt.name if attempt is not None else ""

    def _require_nothing_published(self, seq: int) -> None:
        """Check that the batch is after the last one that the sink got something of: it had nothing for
        the sink.
        """
        stream = self.context.stream
        if 0 < seq <= self.context.ledger.last_published(stream, self.name):
            raise Halted(
                f"Batch {seq} of {stream} would have to be compared with what {self.name} has, or sent "
                "again; it is so old that it is no longer kept",
                "Restore the sink from a newer backup; or state which is the newest batch that it has as a "
                "whole: "
                f"{stream.recover_command('restore-progress')} --progress {self.name}=BATCH",
            )


def shard_name(stream: Stream, sink: str) -> str:
    """Return the stable name of a publisher: transactional id, key of the progress record, Delta
    application.

    Example::

        shard_name(Stream("orders", 1), "kafka:stock")  # "tidegate-orders-g1-kafka:stock"
    """
    return f"tidegate-{stream.pipeline}-g{stream.generation}-{sink}"


def require_not_ahead(shard: str, place: str, seq: int, newest: int) -> None:
    """Raise SinkAhead if a place has a later batch of the shard already than `seq`."""
    if newest > seq:
        raise SinkAhead(
            f"{shard} is at batch {seq}, but batch {newest} is in {place} already",
            "A newer publisher went ahead; nothing was written by this one.",
        )


def generation_in(text: str, pipeline: str) -> int | None:
    """Return the generation of a pipeline whose publisher is named in a text; None if none is.

    Example: `generation_in("00000-tidegate-orders-g2-kafka-stock.avro", "orders")` is 2
    """
    # The name of a pipeline has no hyphen, so it cannot be the end of another pipeline's name.
    named = re.search(f"tidegate-{re.escape(pipeline)}-g([0-9]+)-", text)
    return None if named is None else int(named[1])


def open_sinks(pipeline: Pipeline, context: SinkContext) -> list[OpenSink[Any]]:
    """Return the sinks of a pipeline in the order of its file, and after them the topic of dead letters.

    No sink connects before one of its methods needs a connection.
    """
    # Dead letters are no entry of `sinks:` in the file (decision 57), but published by the same steps.
    return [import_module(sink.publisher).SINK(sink, pipeline, context) for sink in pipeline.outputs]
