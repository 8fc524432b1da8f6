"""Give up old state, quarantine and outboxes, and remove files that nobody reads, without disturbing a reader
or a batch.

First the ledger notes that state before a snapshot is given up; from then on no reader begins to read it.
Files are removed a safe age after that note: by then all readers that began before have ended. Quarantine and
outboxes are removed in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from tidegate.app.lease import check_owner, leased
from tidegate.app.root import App, read_manifests
from tidegate.app.tables import catch_up_tables, expire_tables
from tidegate.errors import LeaseHeld
from tidegate.ledger import EXPIRING, Expiring, KnownNames, LeasedLedger, Snapshot, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.storage import Manifest, Name
from tidegate.storage.compaction import Standing, remove, unread_files
from tidegate.storage.layout import is_resolution
from tidegate.storage.manifest import Kind
from tidegate.storage.store import Listed

SAFE_AGE = timedelta(hours=24)
"""No reader, batch or compaction takes longer than this."""
_PLANNING = timedelta(hours=1)
"""A plan that is being written may pin a state that was the head's a moment ago."""
BATCHES_AT_ONCE = 500
"""The batches that one transaction removes; a larger one would keep a step waiting that writes at the same
time.
"""
_HOLDER = "maintenance"
Noted = TypeVar("Noted")


@dataclass(frozen=True)
class Cleaned:
    """The result of a cleaning of a stream.

    Args:
        given_up: the batch before which state is given up, if this is new.
        names: the attempts, snapshots and resolutions of which files were removed.
        files: the number of removed files, and `bytes` their size.
        note: why less was done than you may expect; "" if there is nothing to say.
        batches: the number of batches of which the ledger has only commit and run from now on.
        expired: the batch up to which quarantine, or outboxes, are expired, where this is new.
    """

    stream: Stream
    given_up: int | None
    names: tuple[str, ...]
    files: int
    bytes: int
    note: str = ""
    batches: int = 0
    expired: Mapping[Expiring, int] = field(default_factory=dict)


def clean(
    app: App, stream: Stream, now: float, safe_age: timedelta = SAFE_AGE, dry_run: bool = False
) -> Cleaned:
    """Give up state that is older than time travel goes, and remove the files that were given up or are dead.

    Tables for other engines are first brought up to the head, so that they name no file that is removed. A
    stream that was never planned is left alone. Raises LedgerMismatch, Fenced, LakeDamaged, LakeUnavailable,
    LedgerUnavailable, PlanUnreadable.

    Args:
        app: the settings, ledger and lake.
        stream: the stream to clean.
        now: epoch seconds, by the ledger's clock, since this machine's clock may be ahead.
        safe_age: no reader, batch or compaction takes longer.
        dry_run: report what would be done, and do nothing.
    """
    if app.ledger.last_planned(stream) is None:
        return Cleaned(stream, None, (), 0, 0, "no batch was planned yet")
    check_owner(app, stream)
    given_up, note = _give_up(app, stream, now, dry_run)
    unread = unread_in(app, stream, now - safe_age.total_seconds())
    if not dry_run:
        pipelines = planned_pipelines(app.ledger, stream)
        catch_up_tables(app, stream, pipelines)
        until = now - safe_age.total_seconds()
        expire_tables(app, stream, pipelines, oldest_readable(app.ledger.snapshots(stream), until), until)
        # After the tables are at the head: until then they may still name a file that is removed here.
        remove(app.lake(stream).store, unread)
    batches = remove_history(app, stream, now, safe_age, dry_run)
    limits = {kind: expire(app, stream, kind, now, safe_age, dry_run) for kind in EXPIRING}
    expired = {kind: seq for kind, seq in limits.items() if seq is not None}
    names = tuple(sorted({file.path.split("/")[-2] for file in unread}))
    size = sum(file.bytes for file in unread)
    return Cleaned(stream, given_up, names, len(unread), size, note, batches, expired)


def unread_in(app: App, stream: Stream, until: float) -> list[Listed]:
    """Return the files in a stream's folder that nobody reads.

    Args:
        until: epoch seconds: files that were changed later are left out, and state counts as given up if that
            was noted by then.
    """
    lake = app.lake(stream)
    listed = lake.store.listed(lake.base)
    # asked after the listing: so the ledger has every name in the listing that can ever count
    names = app.ledger.known_names(stream)
    oldest = oldest_readable(names.snapshots, until)
    expired: dict[Kind, int] = {kind: limit.seq for kind, limit in names.expired.items() if limit.at <= until}
    snapshots = [snapshot.manifest for snapshot in names.snapshots if snapshot.seq >= oldest]
    batches = {committed.name: committed for committed in names.committed.values()}

    def manifest(name: str) -> Manifest:
        return app.manifest(stream, batches[name]).without_expired(expired)

    reading = read_manifests(app, stream, snapshots)
    unnoted = Standing.DEAD if _is_rewritten(app, stream) else Standing.PENDING
    standing = standing_in(names, oldest, expired.get("quarantine", 0), unnoted)
    return list(unread_files(listed, standing, manifest, reading, until))


def _is_rewritten(app: App, stream: Stream) -> bool:
    """Return whether an erasure has rewritten files, and is not finished. Then no compaction begins, and the
    ledger refuses the snapshot of one that began before.
    """
    number = app.ledger.head(stream).erasure
    return number is not None and app.ledger.erasures(stream)[number - 1].rewritten_at is not None


def standing_in(
    names: KnownNames, oldest: int, expired: int, unnoted: Standing = Standing.PENDING
) -> Callable[[str], Standing | None]:
    """Return a function that gives the standing of a name of files; None for a name that is not tidegate's.

    Args:
        names: the names in the ledger.
        oldest: the batch of the oldest snapshot through which state is read.
        expired: the batch up to which quarantine is read no more.
        unnoted: the standing of a snapshot that is not noted, and newer than all that are.
    """
    snapshots = {snapshot.name: snapshot.seq for snapshot in names.snapshots}
    newest = max(snapshots.values(), default=0)

    def of_snapshot(text: str, seq: int) -> Standing:
        if text in snapshots:
            return Standing.COMMITTED if seq >= oldest else Standing.DEAD
        # a compaction at work can still note its snapshot, but only if it is newer than all others
        return Standing.DEAD if seq <= newest else unnoted

    def of_attempt(text: str, seq: int, epoch: int) -> Standing:
        if seq > names.head:
            # the ledger refuses an attempt with a stale epoch, unless it noted the attempt as computed before
            is_refused = epoch < names.epoch and text not in names.computed
            return Standing.DEAD if is_refused else Standing.PENDING
        committed = names.committed.get(seq)
        if committed is None or committed.name != text:
            return Standing.DEAD
        return Standing.SUPERSEDED if seq <= oldest else Standing.COMMITTED

    def of_resolution(text: str) -> Standing:
        resolution = names.resolutions.get(text)
        if resolution is None:
            return Standing.DEAD  # its plan was never noted, or was dropped
        last = max(resolution.last_batch, resolution.seq or 0)
        return Standing.DEAD if last <= expired else Standing.READ_WHOLE

    def standing(text: str) -> Standing | None:
        if is_resolution(text):
            return of_resolution(text)
        name = Name.parse(text)
        if name is None:
            return None
        return of_snapshot(text, name.seq) if name.epoch is None else of_attempt(text, name.seq, name.epoch)

    return standing


def oldest_needed(app: App, stream: Stream, now: float) -> int:
    """Return the oldest batch whose state must be kept: for time travel, as the head, or for an open plan.

    `now`: epoch seconds. Raises LedgerUnavailable.
    """
    travel = max(app.settings.time_travel, _PLANNING)
    # A lookup's pin counts even beyond time travel: its batch must see the same state in each try.
    needed = [app.ledger.head_at(stream, now - travel.total_seconds()), *_pinned(app, stream)]
    return min(needed)


def _pinned(app: App, stream: Stream) -> Iterator[int]:
    """Yield the batches of the stream whose state open plans read."""
    for lookups in app.ledger.open_lookups():
        # A lookup of another pipeline's state pins the batch that its plan has seen as the head.
        for pin in lookups.values():
            if (pin.get("pipeline"), pin.get("generation")) == (stream.pipeline, stream.generation):
                yield pin["seq"]


def _give_up(app: App, stream: Stream, now: float, dry_run: bool) -> tuple[int | None, str]:
    """Mark the newest snapshot through which all state that must be kept can be read."""
    seq = _to_give_up(app, stream, now)
    if seq is None or dry_run:
        return seq, ""

    def note(lease: LeasedLedger) -> tuple[int | None, str]:
        # asked again under the lease: a plan may have pinned an older state since
        due = _to_give_up(app, stream, now)
        if due is not None:
            lease.give_up(due)
        return due, ""

    return note_in_ledger(app, stream, note) or (
        None,
        "a run is at work: old state is given up the next time",
    )


def _to_give_up(app: App, stream: Stream, now: float) -> int | None:
    """Return the batch of the newest snapshot through which all state that must be kept can be read; None if
    it is given up already, or there is none.
    """
    oldest = oldest_needed(app, stream, now)
    usable = [snapshot for snapshot in app.ledger.snapshots(stream) if snapshot.seq <= oldest]
    return usable[-1].seq if usable and usable[-1].given_up_at is None else None


def expire(
    app: App, stream: Stream, kind: Expiring, now: float, safe_age: timedelta, dry_run: bool = False
) -> int | None:
    """Note up to which batch quarantine, or outboxes, are read no more, and return that batch; None if
    nothing has changed.

    Files are removed a safe age after this note; until then no newer note is made. If a run is at work, the
    note is made the next time. Raises Fenced, LedgerUnavailable, PlanUnreadable.

    Args:
        app: the settings, ledger and lake.
        stream: the stream.
        kind: quarantine, or outboxes.
        now: epoch seconds.
        safe_age: no reader takes longer.
        dry_run: return what would be noted, and do nothing.
    """

    def note(lease: LeasedLedger) -> int | None:
        # asked again under the lease: a replay may have been planned since
        last = _newly_expired(app, stream, kind, now, safe_age)
        if last is not None:
            lease.expire(kind, last)
        return last

    due = _newly_expired(app, stream, kind, now, safe_age)
    if due is None or dry_run:
        return due
    return note_in_ledger(app, stream, note)


def _newly_expired(app: App, stream: Stream, kind: Expiring, now: float, safe_age: timedelta) -> int | None:
    """Return the batch up to which quarantine, or outboxes, expire now; None if nothing changes."""
    head = app.ledger.head(stream).seq
    plan = app.ledger.plan(stream, head) if head else None
    if plan is None:
        return None
    pipeline, until = planned_pipeline(plan), now - safe_age.total_seconds()
    rule = pipeline.quarantine if kind == "quarantine" else pipeline.outboxes
    if rule is None or rule.keep_ms is None:
        return None
    last = app.ledger.head_at(stream, now - rule.keep_ms / 1000)
    if kind == "quarantine":
        last = min(last, _last_resolved(app, stream, head))
    else:
        last = min(last, _last_unneeded(app, stream, until))
    expired = app.ledger.expired(stream, kind)
    if last <= expired.seq or (expired.seq and expired.at > until):
        return None
    return last


def _last_resolved(app: App, stream: Stream, head: int) -> int:
    """Return the last batch whose quarantine is sent to its topic, and read by no batch that is not decided:
    if that batch is dropped, the records are open again.
    """
    replayed = (made.first_batch for made in app.ledger.resolutions(stream) if (made.seq or 0) > head)
    return min([app.ledger.newest_publication(stream), *replayed]) - 1


def _last_unneeded(app: App, stream: Stream, until: float) -> int:
    """Return the last batch whose state was given up, and whose outboxes are never sent again.

    Beginning a generation with retained batches, restating them and sending them again need the plans of the
    batches, which leave the ledger no later than that.
    """
    oldest = oldest_readable(app.ledger.snapshots(stream), until)
    return app.ledger.first_needed(stream, oldest) - 1


def remove_history(app: App, stream: Stream, now: float, safe_age: timedelta, dry_run: bool = False) -> int:
    """Remove what the ledger has of batches before the oldest readable state, and return the number of
    batches.

    It is safe beside running batches, which write to the head's row and to those after it. After a crash, the
    next call removes the rest. Raises LedgerUnavailable.

    Args:
        app: the settings, ledger and lake.
        stream: the stream.
        now: epoch seconds.
        safe_age: state counts as given up after this time, when all its readers have ended.
        dry_run: count the batches, and remove nothing.
    """
    oldest = oldest_readable(app.ledger.snapshots(stream), now - safe_age.total_seconds())
    if dry_run or not oldest:
        return app.ledger.removable_batches(stream, oldest)
    removed = 0
    while batches := app.ledger.remove_batches(stream, oldest, BATCHES_AT_ONCE):
        removed += batches
    return removed


def oldest_readable(snapshots: Iterable[Snapshot], until: float) -> int:
    """Return the batch of the oldest state that is still read; 0 if all state is.

    Args:
        until: epoch seconds: state before a snapshot that was given up by then is read no more.
    """
    return max(
        (snapshot.seq for snapshot in snapshots if snapshot.given_up_at and snapshot.given_up_at <= until),
        default=0,
    )


def note_in_ledger(app: App, stream: Stream, note: Callable[[LeasedLedger], Noted]) -> Noted | None:
    """Call `note` with the stream's lease and return its result; None if a run is at work, since maintenance
    does not wait and comes again.

    `note` decides what it writes under the lease, because a run may have ended just before. Raises Fenced,
    LedgerUnavailable.
    """
    try:
        with leased(app, stream, _HOLDER) as lease:
            result = note(lease)
            lease.release()
    except LeaseHeld:
        return None
    return result
