"""Which files of a stream nobody will ever read, and removing them.

Whether a file is read say manifests: those of batches that are committed, and of snapshots that can still be
read through. A file that none of them names may belong to a batch in flight; so whether its name can ever
count is asked of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum, auto

from tidegate.failpoints import failpoint
from tidegate.lake.layout import MANIFEST
from tidegate.lake.manifest import Manifest
from tidegate.lake.store import Listed, Store


class Standing(Enum):
    """What the ledger knows of an attempt, a snapshot or a resolution by its name."""

    DEAD = auto()
    """It does not count, and never will: the ledger would refuse it, or nobody reads through it any more."""
    PENDING = auto()
    """It may count one day: a batch or a compaction is at work."""
    COMMITTED = auto()
    """All that its manifest names is read."""
    SUPERSEDED = auto()
    """A batch whose outbox and quarantine are read, but whose state only through newer snapshots."""
    KEPT = auto()
    """All that has its name is read."""


def unread_files(
    files: Iterable[Listed],
    standing: Callable[[str], Standing | None],
    manifest: Callable[[str], Manifest],
    snapshots: Sequence[Manifest],
    until: float,
) -> Iterator[Listed]:
    """The files that nobody will ever read, of `files`, a listing of the stream's folder.

    Ask the ledger after the listing was made: then it knows all that counts of what is in it. `standing`: of
    a name, None where it is none of ours; `manifest`: of a committed or superseded batch, as far as it is
    read; `snapshots`: those that are read through. Files that were changed after `until` (epoch seconds) are
    left alone, and those whose folder has no such name.
    """
    needed = {file.path for snapshot in snapshots for file in snapshot.files}
    reading = {snapshot.name for snapshot in snapshots}
    named_paths: dict[str, Collection[str]] = {}
    for file in files:
        folder, _, base_name = file.path.rpartition("/")
        name = folder.rpartition("/")[-1]
        if file.path in needed or file.changed_at > until:
            continue
        status = standing(name)
        if status is Standing.DEAD:
            yield file
        if status in (Standing.COMMITTED, Standing.SUPERSEDED):
            if name not in named_paths:
                named_paths[name] = () if name in reading else _named_files(manifest(name), status)
            if base_name != MANIFEST and file.path not in named_paths[name]:
                yield file


def _named_files(manifest: Manifest, standing: Standing) -> frozenset[str]:
    """The files that are read through a batch's manifest."""
    state_too = standing is Standing.COMMITTED
    return frozenset(file.path for file in manifest.files if state_too or file.kind != "state")


def remove(store: Store, files: Iterable[Listed]) -> None:
    """Delete files. One that is not there is removed already. Raises LakeUnavailable."""
    for file in files:
        with failpoint("maintenance.delete"):
            store.delete(file.path)
