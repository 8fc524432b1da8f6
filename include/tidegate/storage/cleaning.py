"""Find the files of a stream that nobody will ever read, and remove them.

Manifests say which files are read: those of committed batches, and of snapshots that state can still be read
through. A file that no manifest names may belong to a batch in flight; therefore the ledger decides whether
the file's name can ever count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum, auto

from tidegate.failpoints import failpoint
from tidegate.storage.layout import MANIFEST
from tidegate.storage.manifest import Manifest
from tidegate.storage.store import Listed, Store


class Standing(Enum):
    """The state of an attempt, a snapshot or a resolution in the ledger, by its name."""

    DEAD = auto()
    """It does not count, and never will: the ledger would refuse it, or nobody reads through it any more."""
    PENDING = auto()
    """It may count later: a batch or a compaction is at work."""
    COMMITTED = auto()
    """All files that its manifest names are read."""
    SUPERSEDED = auto()
    """A batch whose outbox and quarantine are read; its state is read only through newer snapshots."""
    READ_WHOLE = auto()
    """All files under its name are read."""


def unread_files(
    files: Iterable[Listed],
    standing: Callable[[str], Standing | None],
    manifest: Callable[[str], Manifest],
    snapshots: Sequence[Manifest],
    until: float,
) -> Iterator[Listed]:
    """Yield those of `files`, a listing of the stream's folder, that nobody will ever read.

    Ask the ledger after you made the listing: then the ledger has everything in the listing that counts.

    Args:
        files: the listing.
        standing: returns the standing of a name; None if tidegate did not give the name.
        manifest: returns what is read of a committed or superseded batch.
        snapshots: the snapshots through which state is read.
        until: epoch seconds. Files that were changed later are left alone, as are files in a folder without a
            name of tidegate.
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
            # a manifest is read only for a batch that has files in the listing, and once
            if name not in named_paths:
                named_paths[name] = () if name in reading else _named_files(manifest(name), status)
            # The manifest itself stays, although it does not name itself: readers need it.
            if base_name != MANIFEST and file.path not in named_paths[name]:
                yield file


def _named_files(manifest: Manifest, standing: Standing) -> frozenset[str]:
    """Return the paths of the files that are read through a batch's manifest."""
    state_too = standing is Standing.COMMITTED
    return frozenset(file.path for file in manifest.files if state_too or file.kind != "state")


def remove(store: Store, files: Iterable[Listed]) -> None:
    """Delete files; a file that does not exist is removed already. Raises LakeUnavailable if the
    store fails.
    """
    for file in files:
        with failpoint("maintenance.delete"):
            store.delete(file.path)
