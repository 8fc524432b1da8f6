"""Giving up old state, and removing what nobody reads, so that no reader and no batch is surprised.

First the ledger says that state before a snapshot is given up; from then on nobody begins to read it. What
was marked so at least a safe age ago is removed: by then, whoever began before has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tidegate.errors import LeaseHeld
from tidegate.lake import Name, OnDisk, names_in, on_disk, remove_names, vacuum
from tidegate.ledger import KnownNames, Stream
from tidegate.spec.kernel import state_names
from tidegate.steps.app import App, planned_pipelines
from tidegate.steps.history import remove_history
from tidegate.steps.lease import leased

SAFE_AGE = timedelta(hours=24)
"""No reader, batch or compaction takes longer than this."""

_PLANNING = timedelta(hours=1)
"""A plan that is being written may pin a state that was the head's a moment ago."""

HOLDER = "maintenance"


@dataclass(frozen=True)
class Cleaned:
    """What became of a stream's old files.

    `given_up`: the batch before which state is given up, if that is new. `names`: attempts and snapshots of
    which something was removed; `removed`: what they took. `files`: those that were deleted in the end.
    `batches`: of how many the ledger keeps only commit and run from now on.
    """

    stream: Stream
    given_up: int | None
    names: tuple[str, ...]
    removed: OnDisk
    files: int
    note: str = ""
    batches: int = 0


@dataclass(frozen=True)
class _Table:
    """A table of a stream: where it is, and whether it holds state."""

    path: str
    is_state: bool


def clean(
    app: App, stream: Stream, now: float, safe_age: timedelta = SAFE_AGE, dry_run: bool = False
) -> Cleaned:
    """Give up what is older than time travel goes, and remove what was given up or is dead.

    `now`: epoch seconds. Raises LakeUnavailable, LedgerUnavailable.
    """
    given_up, note = _give_up(app, stream, now, dry_run)
    tables = list(_tables(app, stream))
    there = [names_in(table.path) for table in tables]
    known = app.ledger.known_names(stream)  # after the look: of what was there it knows all that ever counts
    until = now - safe_age.total_seconds()
    removed: dict[str, None] = {}
    sizes = []
    for table, names in zip(tables, there, strict=True):
        unread = dead(names, known) + (superseded(names, known, until) if table.is_state else [])
        sizes.append(on_disk(table.path, unread))
        removed |= dict.fromkeys(unread)
        if unread and not dry_run:
            remove_names(table.path, unread)
    files = sum(vacuum(table.path, safe_age, dry_run) for table in tables)
    total = OnDisk(*(sum(each) for each in zip(*sizes, strict=True))) if sizes else OnDisk(0, 0, 0)
    batches = remove_history(app, stream, now, safe_age, dry_run)
    return Cleaned(stream, given_up, tuple(sorted(removed)), total, files, note, batches)


def dead(names: Sequence[str], known: KnownNames) -> list[str]:
    """Those that do not count, and never will: the ledger would refuse them."""
    snapshots = {each.name for each in known.snapshots}
    newest = known.snapshots[-1].seq if known.snapshots else 0

    def is_dead(text: str) -> bool:
        name = Name.parse(text)
        if name is None:
            return False
        if name.epoch is None:
            return text not in snapshots and name.seq <= newest
        if name.seq <= known.head:
            return known.committed.get(name.seq) != text
        return name.epoch < known.epoch and text not in known.computed

    return [each for each in names if is_dead(each)]


def superseded(names: Sequence[str], known: KnownNames, until: float) -> list[str]:
    """The changelogs and snapshots before a state that was given up at `until` or earlier (epoch seconds)."""
    marked = [each.seq for each in known.snapshots if each.given_up_at and each.given_up_at <= until]
    oldest = max(marked, default=0)
    old = {name for seq, name in known.committed.items() if seq <= oldest}
    old |= {each.name for each in known.snapshots if each.seq < oldest}
    return [each for each in names if each in old]


def oldest_kept(app: App, stream: Stream, now: float) -> int:
    """The oldest batch of which the state must be kept: for time travel, as the head, or for an open plan."""
    travel = max(app.settings.time_travel, _PLANNING)
    needed = [app.ledger.head_at(stream, now - travel.total_seconds()), *_pinned(app, stream)]
    return min(needed)


def _pinned(app: App, stream: Stream) -> Iterator[int]:
    """The batches of the stream whose state open plans read."""
    for lookups in app.ledger.open_lookups():
        for pin in lookups.values():
            if (pin.get("pipeline"), pin.get("generation")) == (stream.pipeline, stream.generation):
                yield pin["seq"]


def _give_up(app: App, stream: Stream, now: float, dry_run: bool) -> tuple[int | None, str]:
    """Mark the newest snapshot that all that must be kept can be read through."""
    kept = oldest_kept(app, stream, now)
    usable = [each for each in app.ledger.snapshots(stream) if each.seq <= kept]
    if not usable or usable[-1].given_up_at is not None:
        return None, ""
    seq = usable[-1].seq
    if not dry_run:
        try:
            with leased(app.ledger, stream, HOLDER) as held:
                held.give_up(seq)
                held.release()
        except LeaseHeld:
            return None, "a run is at work: old state is given up the next time"
    return seq, ""


def _tables(app: App, stream: Stream) -> Iterator[_Table]:
    lake = app.lake(stream)
    for name in state_names(planned_pipelines(app, stream)):
        yield _Table(lake.state(name), is_state=True)
        yield _Table(lake.outbox(name), is_state=False)
    yield _Table(lake.quarantine, is_state=False)
