"""Verify all files that a stream's next batches need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.app.manifests import batch_named, state_named
from tidegate.app.root import App
from tidegate.errors import LakeDamaged
from tidegate.ledger import LedgerReader, ManifestRef, Stream
from tidegate.storage.datafile import verify
from tidegate.storage.manifest import DataFile, Manifest


def damaged_files(app: App, stream: Stream) -> tuple[int, list[LakeDamaged]]:
    """Read every byte that the next batch, and the publication of the last one, need.

    Return the number of files, and an error for each file or manifest that is missing, short or changed. The
    error says what needs the file.

    Raises LakeUnavailable, LedgerUnavailable.
    """
    head = app.ledger.head(stream).seq
    of_state = app.ledger.state_manifests(stream, head)
    attempts = _attempts(app.ledger, stream, head)
    readers = dict.fromkeys(of_state, state_named(stream, head))
    for seq, ref in attempts.items():
        # A manifest of both counts as the state's, which the next batch needs.
        readers.setdefault(ref, batch_named(stream, seq))
    damaged: list[LakeDamaged] = []
    files: dict[str, dict[str, DataFile]] = {}
    for ref, manifest in _readable(app, stream, readers, damaged):
        # the state of the last batch, where it is read through a snapshot, may have been cleaned away
        state_reader = readers[ref] if ref in of_state or manifest.seq > head else None
        for file in manifest.files:
            reader = state_reader if file.kind == "state" else batch_named(stream, manifest.seq)
            if reader is not None:
                # By path: a snapshot can list files of the batches before it, too, and each is read once.
                files.setdefault(reader, {})[file.path] = file
    store = app.lake(stream).store
    for reader, by_path in files.items():
        damaged += [error.needed_by(reader) for error in verify(store, list(by_path.values()))]
    return len(readers) + sum(map(len, files.values())), damaged


def _attempts(ledger: LedgerReader, stream: Stream, head: int) -> dict[int, ManifestRef]:
    """Return the manifests of the last batch, and of the next one if it is already computed."""
    attempts = {seq: ledger.attempt(stream, seq) for seq in (head, head + 1) if seq}
    return {seq: attempt.manifest for seq, attempt in attempts.items() if attempt is not None}


def _readable(
    app: App, stream: Stream, readers: Mapping[ManifestRef, str], damaged: list[LakeDamaged]
) -> Iterator[tuple[ManifestRef, Manifest]]:
    for ref, reader in readers.items():
        try:
            yield ref, app.manifest(stream, ref)
        except LakeDamaged as error:
            # Continue with the others: a person restores all damaged files at once.
            damaged.append(error.needed_by(reader))
