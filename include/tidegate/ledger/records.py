"""What the ledger holds, as plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Offsets = Mapping[tuple[str, int], int]
"""(topic, partition) -> the next offset to read."""

Clocks = Mapping[tuple[str, int], int]
"""(topic, partition) -> the largest clock that was applied there, by a batch or by a run that needed none,
epoch ms; -1: none."""

Times = Mapping[str, Mapping[tuple[str, int], int]]
"""Stage -> (topic, partition) -> how far time is there, epoch ms."""


@dataclass(frozen=True)
class Stream:
    """A pipeline and its generation: what has a head of its own."""

    pipeline: str
    generation: int

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.generation}"

    def recover_command(self, choice: str | None = None) -> str:
        """Return the command that shows what can be done for the stream, or that does a choice of it."""
        chosen = f" --choose {choice}" if choice else ""
        return f"tidegate recover {self.pipeline}{chosen} --generation {self.generation}"


@dataclass(frozen=True)
class OffsetRange:
    """Records of a topic-partition from `start` (inclusive) to `end` (exclusive).

    `end_epoch` is the leader epoch of the record before `end`; None where there is none, or nobody tells.
    `is_cut`: records of the batch's interval lie from `end` on, and are left to a later batch; `interval_end`
    (exclusive) is how far they go. None: nothing is left, or nobody noted it.
    """

    topic: str
    partition: int
    start: int
    end: int
    end_epoch: int | None = None
    is_cut: bool = False
    interval_end: int | None = None

    def cut(self, end: int) -> OffsetRange:
        """The range up to `end` at most, and never less than nothing. What it leaves is of its interval."""
        end = max(self.start, end)
        if end >= self.end:
            return self
        return replace(self, end=end, is_cut=True, interval_end=self.interval_end or self.end)

    @property
    def span(self) -> int:
        """Offsets in the range; records may be fewer (markers, compaction)."""
        return self.end - self.start


@dataclass(frozen=True)
class PlannedSpec:
    """A pipeline as batches were planned with it: its file's text, and the compiled form of that day."""

    text: str
    compiled: str

    @property
    def hash(self) -> str:
        """SHA-256 of both, in hex."""
        return hashlib.sha256(f"{self.compiled}\n{self.text}".encode()).hexdigest()


@dataclass(frozen=True)
class LastPlanned:
    """The newest batch that was planned of a stream, by which run, when (epoch seconds), and the text of the
    pipeline's file at that time.
    """

    seq: int
    run_id: str
    planned_at: float
    text: str


@dataclass(frozen=True)
class Plan:
    """The immutable record of a batch, written before anything is read.

    `clock_ms` is the instant that the batch takes as now, and `clocks` how far the runs before it brought
    the partitions of its ranges; it is not applied to those that are cut. A record from after
    `believed_until_ms` is not believed (quarantined). All are epoch ms. A batch with `drain` reads nothing
    and lets out what is held back. `lookups` pins each lookup table, by its text in the pipeline file, to
    what it was at planning: `{"version": n, "id": …}` of a Delta table, or `{"pipeline", "generation",
    "seq", "stage"}` of a state. `spec_text` is the pipeline's file, `spec_compiled` its compiled form (see
    `spec.compiled`).
    `timestamps` are the earliest and the latest that an output topic took at planning (epoch ms; None: any),
    for those of which emissions outside go into quarantine. `replay` is the manifest of the records that were
    in quarantine and are its input, in place of what its ranges read, which is nothing then.
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

    @property
    def spec(self) -> PlannedSpec:
        """The pipeline as it was when the batch was planned."""
        return PlannedSpec(self.spec_text, self.spec_compiled)

    @property
    def span(self) -> int:
        """Offsets in all ranges together."""
        return sum(each.span for each in self.ranges)

    @property
    def most_records(self) -> int:
        """How many records come in at most."""
        return self.span + (0 if self.replay is None else self.replay.file_rows)

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """Where the head stands after this batch."""
        return {(each.topic, each.partition): each.end for each in self.ranges}

    def epochs_after(self, head: Head) -> dict[tuple[str, int], int]:
        """The leader epochs of the records before those offsets. Where a batch reads nothing and the record
        is deleted since, the one that the head knows stays, unless the topic is another one.
        """
        epochs = dict(head.epochs)
        for each in self.ranges:
            at = (each.topic, each.partition)
            if each.span or self.topic_ids.get(each.topic) != head.topic_ids.get(each.topic):
                epochs.pop(at, None)
            if each.end_epoch is not None:
                epochs[at] = each.end_epoch
        return epochs

    @property
    def cut_partitions(self) -> frozenset[tuple[str, int]]:
        """Where the batch leaves records of its interval unread, and therefore applies no clock."""
        return frozenset((each.topic, each.partition) for each in self.ranges if each.is_cut)

    @property
    def interval_ends(self) -> dict[tuple[str, int], int] | None:
        """Where the batch's interval ends; None where that was not noted of a partition that is cut."""
        if any(each.is_cut and each.interval_end is None for each in self.ranges):
            return None
        return {(each.topic, each.partition): each.interval_end or each.end for each in self.ranges}

    @property
    def least_clock(self) -> int:
        """The clock before this batch of partitions that it does not know."""
        return min(self.clocks.values(), default=-1)

    @property
    def clocks_after(self) -> dict[tuple[str, int], int]:
        """The head's clocks after this batch."""
        cut = self.cut_partitions
        return {at: old if at in cut else max(old, self.clock_ms) for at, old in self.clocks.items()}


@dataclass(frozen=True)
class Head:
    """The last committed batch; `seq` 0 means that nothing is committed yet.

    `epochs` are the leader epochs of the last records before `offsets`, as far as they are known, and
    `clocks` the largest clocks that were applied. `send_from` is the first batch that is sent again, where a
    person has chosen that; None: no batch before the head is.
    """

    stream: Stream
    seq: int = 0
    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[tuple[str, int], int] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=dict)
    send_from: int | None = None

    def has_read(self, topic: str) -> bool:
        """Return whether batches have read the topic: they know each partition that it had then."""
        return any(known == topic for known, _ in self.offsets)

    def clocks_of(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The clocks of partitions, also of new ones.

        A new one is taken for one of the oldest interval that is not read to its end: it has the clock before
        that, and where nothing is cut, the largest of all.
        """
        least = min(self.clocks.values(), default=-1)
        return {at: self.clocks.get(at, least) for at in partitions}

    def unread_of(self, other: Head) -> dict[tuple[str, int], int]:
        """Where another generation is further in what both read: partition -> offsets that are missing here.

        A topic that was created anew in between is another one. Empty: this one has caught up.
        """
        shared = {topic for topic, id_ in other.topic_ids.items() if self.topic_ids.get(topic) == id_}
        behind = {
            place: offset - self.offsets.get(place, 0)
            for place, offset in other.offsets.items()
            if place[0] in shared
        }
        return {place: missing for place, missing in behind.items() if missing > 0}


class CommittedBatch(NamedTuple):
    """The attempt that a ledger, by its identity, has committed as a batch of a stream.

    Batch 0 stands for the stream before its first batch, and its attempt is "".
    """

    ledger: str
    seq: int
    attempt: str


@dataclass(frozen=True)
class Lease:
    """The right to work on a stream, as of `epoch`. A higher epoch in the ledger makes it worthless."""

    stream: Stream
    holder: str
    epoch: int


@dataclass(frozen=True)
class ManifestRef:
    """How the manifest of an attempt or a snapshot is known again: by the name that both have, its size, and
    the SHA-256 of its bytes. `file_rows`, `file_bytes`: what all files that it names have together.
    """

    name: str
    bytes: int
    digest: str
    file_rows: int
    file_bytes: int


@dataclass(frozen=True)
class Attempt:
    """One computation of a planned batch, and its files' manifest. `validated`: null until the gate ran.

    `counts` is stage -> metric -> number, where the stage "" is the whole batch. `times` is how far the time
    of each stage is after the batch, in every partition that was ever read.
    """

    stream: Stream
    seq: int
    manifest: ManifestRef
    counts: Mapping[str, Mapping[str, float]]
    validated: bool | None = None
    times: Times = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name that no other computation has."""
        return self.manifest.name

    def stage_counts(self, stage: str) -> Mapping[str, float]:
        """Metric -> number of one stage, or of the whole batch (""); nothing if it has none."""
        return self.counts.get(stage, {})


@dataclass(frozen=True)
class Snapshot:
    """The state of all stages after batch `seq`, folded. Times in epoch seconds.

    `given_up_at`: since when the state before it can no longer be read; None: it can.
    """

    stream: Stream
    seq: int
    manifest: ManifestRef
    made_at: float = 0.0
    given_up_at: float | None = None

    @property
    def name(self) -> str:
        """The name that no other snapshot has, and no attempt."""
        return self.manifest.name


@dataclass(frozen=True)
class Resolution:
    """What was decided of records in quarantine: that batch `seq` replays them, or, where it is None, that
    they are discarded. `number` is 1, 2, 3 … of the stream.

    `manifest` names the file with the records: those that are replayed whole, as they are replayed. They were
    put into quarantine in batches from `first_batch` to `last_batch`. `decided_at`: epoch seconds.
    """

    stream: Stream
    number: int
    seq: int | None
    manifest: ManifestRef
    first_batch: int
    last_batch: int
    decided_by: str
    reason: str
    decided_at: float = 0.0


@dataclass(frozen=True)
class Recovery:
    """That a remedy of `tidegate recover` was used: why, what it was to do, by whom, and what came of it.

    `outcome` is empty while it is at work, and stays so where its process was killed. Times are epoch
    seconds, set by the ledger.
    """

    stream: Stream
    remedy: str
    cause: str
    effects: tuple[str, ...]
    decided_by: str
    decided_at: float = 0.0
    outcome: tuple[str, ...] = ()


@dataclass(frozen=True)
class GivenUp:
    """What a sink never gets of a decided batch.

    `records` is how many emissions the batch has for the sink, and `sent` how many messages of them the sink
    has all the same. `export` is the folder with what could be read of them. `given_up_at`: epoch seconds,
    set by the ledger.
    """

    seq: int
    sink: str
    sent: int
    records: int
    export: str
    given_up_at: float = 0.0


@dataclass(frozen=True)
class Expired:
    """What is in quarantine of batches up to `seq` is read no more, since `at` (epoch seconds); 0: all is."""

    seq: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class KnownNames:
    """Whose files count, at one instant. An attempt of an older epoch that is not here never will be.

    `committed` is seq -> its attempt's manifest, `computed` are the names of those of the batch after the
    head, `snapshots` oldest first, `resolutions` name -> resolution of records in quarantine.
    """

    head: int
    epoch: int
    committed: Mapping[int, ManifestRef]
    computed: frozenset[str]
    snapshots: tuple[Snapshot, ...]
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)
    expired: Expired = Expired()


@dataclass(frozen=True)
class Failure:
    """The last failure of a step of a batch: the error's class and its two sentences. `at_ms`: epoch ms."""

    stream: Stream
    seq: int
    step: str
    error: str
    what: str
    fix: str
    at_ms: int


@dataclass(frozen=True)
class Run:
    """What a trigger came to: the batch it works on, or the reason why there is none."""

    run_id: str
    seq: int | None
    note: str = ""


@dataclass(frozen=True)
class BatchFacts:
    """All that the ledger has of a batch; times in epoch seconds.

    Of a batch that is not decided `committed_at` is None. Of one that has left the ledger but for its commit
    and its run, `plan` is None. `metrics` are those of the whole batch, `publications` sink -> records of the
    sinks that have all of it, `failure` the last one that was noted: the batch may have gone through since.
    """

    stream: Stream
    seq: int
    run_id: str | None
    plan: Plan | None
    planned_at: float | None
    attempt: Attempt | None
    committed_at: float | None
    metrics: Mapping[str, float]
    publications: Mapping[str, int]
    failure: Failure | None


@dataclass(frozen=True)
class StreamStatus:
    """How a stream stands now.

    `holder` has the lease, None: nobody. `committed_at` (epoch seconds) is of the head; `newest_ms` (epoch
    ms) the timestamp of the newest record that was read. `open_seq` is the batch that is planned and not
    decided, planned at `planned_at` (epoch seconds).
    """

    head: Head
    holder: str | None
    committed_at: float | None
    newest_ms: int | None
    open_seq: int | None
    planned_at: float | None

    @property
    def stream(self) -> Stream:
        """Whose standing it is."""
        return self.head.stream
