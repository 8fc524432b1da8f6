"""Immutable values that the ledger stores: plans, heads, leases, attempts, snapshots and decisions.

They have no access to the database, so a test or a simulator makes them without one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) -> the next offset to read."""

Clocks = Mapping[tuple[str, int], int]
"""(topic, partition) -> the largest clock that a batch, or a run without a batch, applied to it, in epoch ms.
-1 means that no clock was applied."""

Times = Mapping[str, Mapping[tuple[str, int], int]]
"""Stage -> (topic, partition) -> the stage's time in that partition, in epoch ms."""


@dataclass(frozen=True)
class Stream:
    """A pipeline and its generation: the unit that has its own head, state and progress.

    Example: `str(Stream("orders", 2))` is `orders/2`.
    """

    pipeline: str
    generation: int

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.generation}"

    def recover_command(self, choice: str | None = None) -> str:
        """Return the `tidegate recover` command that users run for this stream.

        Without a `choice` the command lists the remedies; with one it applies that remedy.

        Example: `Stream("orders", 2).recover_command("drop-plan")` is
        `tidegate recover orders --choose drop-plan --generation 2`.
        """
        chosen = f" --choose {choice}" if choice else ""
        return f"tidegate recover {self.pipeline}{chosen} --generation {self.generation}"


@dataclass(frozen=True)
class OffsetRange:
    """Records of a topic-partition.

    Args:
        start: the first offset, inclusive.
        end: the last offset, exclusive.
        end_epoch: the leader epoch of the record before `end`; None if no such record exists or the broker
            does not report epochs.
        is_cut: the batch's interval has records from `end` on, which a later batch reads.
        interval_end: the end of the interval, exclusive; None if nothing is left, or if nobody recorded it.
    """

    topic: str
    partition: int
    start: int
    end: int
    end_epoch: int | None = None
    is_cut: bool = False
    interval_end: int | None = None

    def cut(self, end: int) -> OffsetRange:
        """Return the range up to `end` at most; it can be empty, but never negative. The rest stays in its
        interval.

        Example: `OffsetRange("events", 0, 10, 30).cut(20)` is `OffsetRange("events", 0, 10, 20, is_cut=True,
        interval_end=30)`.
        """
        end = max(self.start, end)
        if end >= self.end:
            return self
        # A range that is cut twice still belongs to the interval that it had first.
        return replace(self, end=end, is_cut=True, interval_end=self.interval_end or self.end)

    @property
    def place(self) -> tuple[str, int]:
        """The topic-partition."""
        return self.topic, self.partition

    @property
    def span(self) -> int:
        """The number of offsets in the range. It can have fewer records: transaction markers and compaction
        use up offsets.
        """
        return self.end - self.start


@dataclass(frozen=True)
class PlannedSpec:
    """A pipeline as it was when batches were planned: the file's text, and its compiled form."""

    text: str
    compiled: str

    @property
    def hash(self) -> str:
        """SHA-256 of both, in hex."""
        return hashlib.sha256(f"{self.compiled}\n{self.text}".encode()).hexdigest()


@dataclass(frozen=True)
class LastPlanned:
    """The newest planned batch of a stream.

    Args:
        run_id: the run that planned it.
        planned_at: epoch seconds.
        text: the text of the pipeline file at that time.
    """

    seq: int
    run_id: str
    planned_at: float
    text: str


@dataclass(frozen=True)
class PlannedVersion:
    """A version of the pipeline, and the first of the consecutive batches that were planned with it.

    Args:
        planned_at: when that batch was planned, epoch seconds.
        text: the text of the pipeline file.
    """

    seq: int
    planned_at: float
    text: str


@dataclass(frozen=True)
class ReusedBatch:
    """The part of a batch that is not computed: another generation has decided it from the same records.

    The batch has state and emissions of `stages` from there, and reads no records.

    Args:
        generation: the other generation; both have the number of the batch in common.
        stages: the stages that both have alike.
        sinks: the sinks that have the emissions of these stages already, since both generations send them
            alike.
    """

    generation: int
    stages: tuple[str, ...]
    sinks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The immutable record of a batch, written before the batch reads anything.

    Args:
        run_id: the run that planned it.
        clock_ms: the instant that the batch takes as now, epoch ms. It is not applied to partitions whose
            range is cut.
        believed_until_ms: a record with a later timestamp goes to quarantine, epoch ms.
        ranges: the offsets that the batch reads.
        topic_ids: topic -> Kafka's id of it at planning.
        spec_text: the text of the pipeline's file.
        spec_compiled: its compiled form (see `model.compiled`).
        drain: the batch reads nothing and emits the buffered values.
        lookups: each lookup table, by its text in the pipeline file, at its version at planning: `{"version":
            n, "id": …}` of a Delta table, or `{"pipeline", "generation", "seq", "stage"}` of a state.
        clocks: the clocks that earlier runs applied to the partitions of `ranges`, epoch ms.
        timestamps: per output topic that limits timestamps, the earliest and latest that it accepted at
            planning (epoch ms; None: no limit). Emissions outside of them go to quarantine.
        replay: the manifest of quarantined records that are the input of the batch; its `ranges` are then
            empty.
        reused: the part that another generation has decided; None: all stages are computed from the records
            of `ranges`.
        erasure: the number of the erasure whose batch it is; None: sinks get emissions.
    """

    stream: Stream
    seq: int
    run_id: str
    clock_ms: int
    believed_until_ms: int
    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, str]
    spec_text: str
    spec_compiled: str
    drain: bool = False
    lookups: Mapping[str, Any] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=dict)
    timestamps: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)
    replay: ManifestRef | None = None
    reused: ReusedBatch | None = None
    erasure: int | None = None

    @property
    def spec(self) -> PlannedSpec:
        """The pipeline as it was when the batch was planned."""
        return PlannedSpec(self.spec_text, self.spec_compiled)

    @property
    def span(self) -> int:
        """Offsets in all ranges together."""
        return sum(range_.span for range_ in self.ranges)

    @property
    def needed_ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges with records that the batch reads from Kafka."""
        return () if self.reused is not None else tuple(range_ for range_ in self.ranges if range_.span)

    @property
    def most_records(self) -> int:
        """The largest number of records that the batch can read."""
        return self.span + (0 if self.replay is None else self.replay.file_rows)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """The next offset to read of each partition after this batch."""
        return {range_.place: range_.end for range_ in self.ranges}

    def epochs_after(self, head: Head) -> dict[tuple[str, int], int]:
        """Return the leader epochs of the records before the head's offsets, after this batch.

        If the batch reads nothing from a partition and its last record is deleted since, the epoch of the
        head stays, unless the topic was deleted and created again.
        """
        epochs = dict(head.epochs)
        for range_ in self.ranges:
            partition = range_.place
            is_new_topic = self.topic_ids.get(range_.topic) != head.topic_ids.get(range_.topic)
            if range_.span or is_new_topic:
                # The old epoch belongs to an older record. No epoch is better than a wrong one, which looks
                # like a log that was truncated.
                epochs.pop(partition, None)
            if range_.end_epoch is not None:
                epochs[partition] = range_.end_epoch
        return epochs

    @property
    def cut_partitions(self) -> frozenset[tuple[str, int]]:
        """The partitions in which the batch leaves records of its interval unread. It applies no clock to
        them.
        """
        return frozenset(range_.place for range_ in self.ranges if range_.is_cut)

    @property
    def interval_ends(self) -> dict[tuple[str, int], int] | None:
        """The end of the batch's interval in each partition; None if it was not recorded for a partition that
        is cut.
        """
        if any(range_.is_cut and range_.interval_end is None for range_ in self.ranges):
            return None
        return {range_.place: range_.interval_end or range_.end for range_ in self.ranges}

    @property
    def least_clock(self) -> int:
        """The smallest clock before this batch, which partitions without a clock of their own have; -1 if
        none has one.
        """
        return min(self.clocks.values(), default=-1)

    @property
    def clocks_after(self) -> dict[tuple[str, int], int]:
        """The clocks of the head after this batch. A clock never goes back."""
        cut = self.cut_partitions
        return {at: old if at in cut else max(old, self.clock_ms) for at, old in self.clocks.items()}


@dataclass(frozen=True)
class Head:
    """The last committed batch.

    Args:
        seq: the batch; 0 means that no batch is committed yet.
        offsets: the next offset to read of each partition.
        topic_ids: topic -> Kafka's id of it.
        epochs: the leader epochs of the last records before `offsets`, as far as the broker reported them.
        clocks: the largest clocks that were applied, epoch ms.
        send_from: the first batch that is sent again, if a person has chosen that; None: the batches before
            the head are not sent again.
        erasure: the number of the erasure that is not finished; None if there is none.
    """

    stream: Stream
    seq: int = 0
    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[tuple[str, int], int] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=dict)
    send_from: int | None = None
    erasure: int | None = None

    def has_read(self, topic: str) -> bool:
        """Return whether batches have read the topic. The head then has an offset of each partition that it
        had.
        """
        return any(read_topic == topic for read_topic, _ in self.offsets)

    def clocks_of(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the clock of each partition, also of partitions that no batch has read yet.

        A new partition gets the smallest clock of all. Its records can belong to the oldest interval that is
        not read to its end; if no interval is cut, all partitions have the same clock anyway.
        """
        least = min(self.clocks.values(), default=-1)
        return {at: self.clocks.get(at, least) for at in partitions}

    def unread_of(self, other: Head) -> dict[tuple[str, int], int]:
        """Return, per partition, how many offsets `other` has read and this head has not, in topics that both
        read.

        Empty if this head has caught up. Topics are compared by Kafka's topic id, since a topic that was
        deleted and created again has other records under the same name.

        Example: with offset 40 here and 100 in `other`, `{("events", 0): 60}`.
        """
        shared = {topic for topic, id_ in other.topic_ids.items() if self.topic_ids.get(topic) == id_}
        behind = {
            partition: offset - self.offsets.get(partition, 0)
            for partition, offset in other.offsets.items()
            if partition[0] in shared
        }
        return {partition: missing for partition, missing in behind.items() if missing > 0}


class CommittedBatch(NamedTuple):
    """The attempt that a ledger (`ledger` is its identity) has committed as a batch of a stream.

    Batch 0 is the stream before its first batch, and its attempt is "".
    """

    ledger: str
    seq: int
    attempt: str


class Commit(NamedTuple):
    """The commit of a batch: its number, when it was committed (epoch ms), and the manifest of its
    attempt.
    """

    seq: int
    committed_at_ms: int
    manifest: ManifestRef


@dataclass(frozen=True)
class Lease:
    """The right to work on a stream, under `epoch`. A higher epoch in the ledger ends it: its holder can
    write nothing.

    Args:
        holder: the run that has it; a retry of the run takes over at once.
        epoch: rises with each acquisition.
    """

    stream: Stream
    holder: str
    epoch: int


@dataclass(frozen=True)
class ManifestRef:
    """A reference to the manifest of an attempt or a snapshot. A reader checks it before it trusts the
    manifest.

    Args:
        name: the name of the attempt or snapshot.
        bytes: the size of the manifest.
        digest: its SHA-256, in hexadecimal.
        file_rows: the rows of all files that it names.
        file_bytes: the bytes of all files that it names.
    """

    name: str
    bytes: int
    digest: str
    file_rows: int
    file_bytes: int


@dataclass(frozen=True)
class Attempt:
    """One computation of a planned batch, and the manifest of its files.

    Args:
        counts: stage -> metric -> number; the stage "" is the whole batch.
        validated: whether the quality gate let it pass; None until the gate has run.
        times: the time of each stage after the batch, in every partition that was ever read.
    """

    stream: Stream
    seq: int
    manifest: ManifestRef
    counts: Mapping[str, Mapping[str, float]]
    validated: bool | None = None
    times: Times = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the attempt, which no other computation has."""
        return self.manifest.name

    def stage_counts(self, stage: str) -> Mapping[str, float]:
        """Return metric -> number of a stage ("" for the whole batch); empty if the stage counted nothing."""
        return self.counts.get(stage, {})


@dataclass(frozen=True)
class Snapshot:
    """The state of all stages after batch `seq`, folded into sorted files.

    Args:
        made_at: epoch seconds.
        given_up_at: since when the state before the snapshot cannot be read, epoch seconds; None if it can.
    """

    stream: Stream
    seq: int
    manifest: ManifestRef
    made_at: float = 0.0
    given_up_at: float | None = None

    @property
    def name(self) -> str:
        """The name of the snapshot, which no other snapshot and no attempt has."""
        return self.manifest.name


@dataclass(frozen=True)
class Run:
    """The result of a trigger: the batch that it works on, or the reason why it has no batch.

    Example: `Run("manual__2026-01-01", None, "nothing to read: …")`.
    """

    run_id: str
    seq: int | None
    note: str = ""
