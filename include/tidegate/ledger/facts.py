"""Facts beside the batches: failures, decisions of people, results of quality suites, and summaries."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tidegate.errors import Halted
from tidegate.ledger.records import Attempt, Head, ManifestRef, Plan, Snapshot, Stream


@dataclass(frozen=True)
class Failure:
    """The last failure of a step of a batch.

    Args:
        step: the step, or `start` or `tables`.
        error: the class of the error.
        what: its first sentence, which says what has happened.
        fix: its second sentence, which says what to do.
        at_ms: epoch ms.
    """

    stream: Stream
    seq: int
    step: str
    error: str
    what: str
    fix: str
    at_ms: int


@dataclass(frozen=True)
class Recovery:
    """The use of a remedy of `tidegate recover`.

    Args:
        remedy: its name, as for `--choose`.
        cause: why the stream could not continue.
        effects: the effects that it showed before.
        decided_by: who chose it.
        decided_at: epoch seconds, set by the ledger.
        outcome: empty while the remedy is at work; it stays empty if its process was killed.
    """

    stream: Stream
    remedy: str
    cause: str
    effects: tuple[str, ...]
    decided_by: str
    decided_at: float = 0.0
    outcome: tuple[str, ...] = ()


@dataclass(frozen=True)
class Erasure:
    """A use of `tidegate erase` on a stream; once it is finished, its certificate.

    Args:
        number: counts the stream's erasures from 1.
        seq: the batch by which sinks are told. State, emissions and quarantine of earlier batches lack the
            keys.
        salt: part of what the digests are of.
        keys: the digests of the keys that were named.
        entries: the digests of the keys of other stages that contain them.
        request: the keys as text, with the columns that they are of; None when the erasure is finished.
        decided_by: who decided it.
        decided_at: epoch seconds, set by the ledger, as are the other instants.
        rewritten_at: since when no reader finds the keys; None before.
        finished_at: since when their bytes are removed; None before.
        rows: kind of rows -> number of rows that were removed.
        files: the rewritten files: path and digest before and after.
        batches: the batches that had rows of the keys.
        sinks: sink -> what was done there.
        remarks: what may still have the keys.
    """

    stream: Stream
    number: int
    seq: int
    salt: str
    keys: tuple[str, ...]
    entries: tuple[str, ...]
    request: Mapping[str, Any] | None
    decided_by: str
    decided_at: float = 0.0
    rewritten_at: float | None = None
    finished_at: float | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    files: tuple[Mapping[str, str], ...] = ()
    batches: tuple[int, ...] = ()
    sinks: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def covers(self, key: str) -> bool:
        """Return whether the erasure has removed a key, of whichever stage."""
        digest = salted(self.salt, key)
        return digest in self.keys or digest in self.entries


def salted(salt: str, key: str) -> str:
    """Return the digest of a key, in hexadecimal."""
    return hashlib.sha256(f"{salt}:{key}".encode()).hexdigest()


@dataclass(frozen=True)
class Rewritten:
    """The files that an erasure has rewritten, which readers do not find yet.

    Args:
        manifests: name of an attempt, a snapshot or a resolution -> its new manifest.
        rows: as `Erasure.rows`; so are `files`, `batches` and `entries`.
    """

    manifests: Mapping[str, ManifestRef]
    rows: Mapping[str, int]
    files: tuple[Mapping[str, str], ...]
    batches: tuple[int, ...]
    entries: tuple[str, ...]


@dataclass(frozen=True)
class Resolution:
    """The decision about records in quarantine.

    Args:
        number: counts the stream's resolutions from 1.
        seq: the batch that replays them; None: they are discarded.
        manifest: names the file with the records; for a replay the file has them whole, as they are replayed.
        first_batch: the first batch that put one of them into quarantine.
        last_batch: the last such batch.
        decided_at: epoch seconds.
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
class GivenUp:
    """The decision that a sink never gets a part of a decided batch.

    Args:
        sent: the number of messages that the sink got of the batch.
        records: the number of emissions that the batch has for the sink.
        export: the folder with the emissions that could be read.
        given_up_at: epoch seconds, set by the ledger.
    """

    seq: int
    sink: str
    sent: int
    records: int
    export: str
    given_up_at: float = 0.0


@dataclass(frozen=True)
class SinkProgress:
    """The progress of a sink that has no transactions of its own: what it has acknowledged.

    Args:
        seq: the newest batch that was sent to it.
        attempt: the attempt that computed the batch; "" if nothing of it was sent.
        requests: the number of acknowledged requests.
        records: the number of emissions in them.
        done: whether these were all emissions of the batch.
    """

    seq: int
    attempt: str
    requests: int
    records: int
    done: bool


@dataclass(frozen=True)
class QualityResult:
    """The result of one expectation in one try to validate a batch.

    `quality.ExpectationResult` describes the fields that are not listed here.

    Args:
        attempt: the name of the attempt.
        try_number: counts the tries of the batch from 1.
        check_number: counts the checks of its pipeline from 1.
        expectation: counts the expectations of the suite from 1.
        suite_digest: the SHA-256 of the suite's text, in hexadecimal.
        target: the data that the check evaluates.
        failing: at most 20 rows that break the expectation.
        page: the page of Data Docs with the result.
    """

    attempt: str
    try_number: int
    check_number: int
    expectation: int
    suite: str
    suite_digest: str
    target: str
    type: str
    column_names: tuple[str, ...]
    severity: str
    passed: bool
    observed: str
    evaluated_rows: int | None
    unexpected_rows: int | None
    unexpected_share: float | None
    failing: tuple[Mapping[str, str], ...]
    error: str | None
    note: str
    page: str | None


Expiring = Literal["quarantine", "outbox"]
"""The kinds of files that a pipeline file can keep for some time only."""
EXPIRING: tuple[Expiring, ...] = get_args(Expiring)


@dataclass(frozen=True)
class Expired:
    """The limit of quarantine, or of outboxes.

    Args:
        seq: batches up to this one are not read any more; 0: no limit.
        at: since when, epoch seconds.
    """

    seq: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class KnownNames:
    """The names of all attempts, snapshots and resolutions whose files are valid, at one instant.

    An attempt of an older epoch that is missing here will never be committed, so its files can be deleted.

    Args:
        head: the last committed batch.
        epoch: the newest epoch.
        committed: seq -> the manifest of its attempt.
        computed: the names of the attempts of the batch after the head.
        snapshots: the snapshots, oldest first.
        resolutions: name -> resolution of records in quarantine.
        expired: the limits of quarantine and of outboxes.
    """

    head: int
    epoch: int
    committed: Mapping[int, ManifestRef]
    computed: frozenset[str]
    snapshots: tuple[Snapshot, ...]
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)
    expired: Mapping[Expiring, Expired] = field(default_factory=lambda: dict.fromkeys(EXPIRING, Expired()))


@dataclass(frozen=True)
class BatchFacts:
    """Everything that the ledger stores about a batch.

    Args:
        plan: None if only the commit and the run are left of the batch.
        planned_at: epoch seconds.
        attempt: the committed attempt; before the commit the newest one.
        committed_at: epoch seconds; None if the batch is not decided.
        metrics: those of the whole batch.
        publications: sink -> records, for the sinks that have the whole batch.
        failure: the last failure that was recorded; a later try may have succeeded.
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
class CurrentBatches:
    """The batches of a stream that decide its condition.

    Args:
        decided: the head's batch; its fields are empty before the first commit.
        following: the batch after it, which may be planned.
        unreadable: why the plans are missing here; None if they are not.
    """

    decided: BatchFacts
    following: BatchFacts
    unreadable: Halted | None = None


@dataclass(frozen=True)
class StreamStatus:
    """The current state of a stream in the ledger.

    Args:
        holder: who has the lease; None if nobody has.
        committed_at: the commit of the head, epoch seconds.
        newest_ms: the timestamp of the newest record that was read, epoch ms.
        open_seq: the batch that is planned and not decided.
        planned_at: when it was planned, epoch seconds.
    """

    head: Head
    holder: str | None
    committed_at: float | None
    newest_ms: int | None
    open_seq: int | None
    planned_at: float | None

    @property
    def stream(self) -> Stream:
        """The stream that has this status."""
        return self.head.stream
