"""Fold the changelogs since the last snapshot into a new snapshot. Compaction is safe beside running batches.

Readers of state read the newest snapshot and the changelogs after it; they give the same rows before and
after a compaction. Nothing is removed here: see `maintenance.cleaning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tidegate.app.lease import check_owner
from tidegate.app.root import App, needed_by, read_manifests, state_named
from tidegate.errors import Permanent, TidegateError, Transient
from tidegate.ledger import Snapshot, Stream
from tidegate.ledger.planned import planned_pipelines
from tidegate.model.kernel_stages import state_stages
from tidegate.storage import DataFile, Manifest, snapshot_name
from tidegate.storage.compaction import MOST_CHANGELOGS, FoldRule, SnapshotTarget, compact, is_due

Result = TypeVar("Result")


class Size(NamedTuple):
    """The size of the state of all stages. Rows are rows in files: a key may have several."""

    rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class Compaction:
    """The result of a compaction: the files from which the state after batch `seq` was read before, and is
    now.

    `note` says what was done, or why nothing was done; `snapshot` is the name of the new snapshot.
    """

    stream: Stream
    seq: int
    note: str
    before: Size
    after: Size
    snapshot: str | None = None


def compact_state(app: App, stream: Stream, only_if_due: bool = False, dry_run: bool = False) -> Compaction:
    """Fold the state after the head into a snapshot, unless it is one already.

    It takes no lease. If two compactions run at once, one is noted, and the files of the other are dead.
    Raises LedgerMismatch, LakeDamaged, LakeUnavailable, LedgerUnavailable, PlanUnreadable.

    Args:
        app: the settings, ledger and lake.
        stream: the stream to compact.
        only_if_due: do nothing while the changelogs are few and small.
        dry_run: report what would be done, and do nothing.
    """
    # Before any file is read: if an erasure rewrites them meanwhile, the snapshot must not count.
    rewrites = app.ledger.rewrites(stream)
    snapshots = app.ledger.snapshots(stream)
    base = snapshots[-1].seq if snapshots else 0
    begun = app.ledger.head(stream)
    head = begun.seq
    if head:
        check_owner(app, stream)
    with needed_by(state_named(stream, head)):
        manifests = read_manifests(app, stream, app.ledger.state_manifests(stream, head))
    before = _size_of(manifests)
    why_not = _why_not(head, base, manifests, only_if_due)
    # It deletes what is not noted yet; one that begins after this line is counted in `rewrites`.
    why_not = why_not if begun.erasure is None else "an erasure is not finished"
    if why_not or dry_run:
        return Compaction(stream, head, why_not or "would be compacted", before, before)
    with needed_by(state_named(stream, head)):
        snapshot = _folded(app, stream, head, manifests)
    written = app.write_manifest(stream, snapshot)
    # Compare-and-set on the last snapshot: it is refused if another one was noted since it was read.
    if not app.ledger.add_snapshot(Snapshot(stream, head, written), base, rewrites):
        # At once: an erasure that has rewritten files since does not know of these.
        _remove_own(app, stream, snapshot)
        return Compaction(stream, head, "another compaction was faster", before, before)
    return Compaction(stream, head, "compacted", before, _size_of([snapshot]), snapshot.name)


def _remove_own(app: App, stream: Stream, snapshot: Manifest) -> None:
    """Delete the files of a snapshot that was refused, but not those of others, which it names again."""
    store = app.lake(stream).store
    for file in snapshot.files:
        if file.path.split("/")[-2] == snapshot.name:
            store.delete(file.path)


def compact_overdue(app: App, stream: Stream) -> None:
    """Compact before a batch computes, if the state is in more than twice as many changelogs as it should be.

    Raises as `compact_state`.
    """
    if len(app.ledger.state_manifests(stream)) > 2 * MOST_CHANGELOGS:
        compact_state(app, stream)


def _why_not(head: int, base: int, manifests: Sequence[Manifest], only_if_due: bool) -> str | None:
    """Return why nothing is to do; None if a compaction is due. `base`: the batch of the last
    snapshot, or 0.
    """
    if head == base:
        return "is compacted already" if head else "no batch is committed yet"
    # `state_manifests` begins with the snapshot, if there is one.
    snapshot, changelogs = (manifests[0], manifests[1:]) if base else (None, manifests)
    if only_if_due and not is_due(snapshot, changelogs):
        changed, folded = _size_of(changelogs).rows, snapshot.rows if snapshot is not None else 0
        return f"not due: {changed} rows changed since a snapshot of {folded}"
    return None


def _folded(app: App, stream: Stream, head: int, manifests: Sequence[Manifest]) -> Manifest:
    lake, name = app.lake(stream), snapshot_name(head)
    target = SnapshotTarget(name, head, lambda stage: lake.files("state", stage, name))
    stages = state_stages(planned_pipelines(app.ledger, stream))
    rules = {stage: FoldRule.for_stages(logics) for stage, logics in stages.items()}
    return compact(lake.store, target, _state_of(manifests), rules)


def _state_of(manifests: Iterable[Manifest]) -> list[DataFile]:
    return [file for manifest in manifests for file in manifest.files if file.kind == "state"]


def _size_of(manifests: Iterable[Manifest]) -> Size:
    files = _state_of(manifests)
    return Size(sum(file.rows for file in files), sum(file.bytes for file in files), len(files))


def work_on_streams(
    streams: Sequence[Stream], work: Callable[[Stream], Result]
) -> tuple[list[Result], TidegateError | None]:
    """Call `work` for each stream. Returns the results of the streams that succeeded, in order, and the error
    to raise, or None.

    Several errors become one with the messages of all; it is worth a retry if any of them is.
    """
    results: list[Result] = []
    errors: dict[Stream, TidegateError] = {}
    for stream in streams:
        try:
            results.append(work(stream))
        # One damaged stream must not keep the others from being compacted or cleaned.
        except TidegateError as error:
            errors[stream] = error
    return results, _combined(errors)


def _combined(errors: dict[Stream, TidegateError]) -> TidegateError | None:
    if len(errors) < 2:
        return next(iter(errors.values()), None)
    is_transient = any(isinstance(error, Transient) for error in errors.values())
    words = "\n".join(f"{stream}: {type(error).__name__}: {error}" for stream, error in errors.items())
    return (Transient if is_transient else Permanent)(f"{len(errors)} streams failed:\n{words}")
