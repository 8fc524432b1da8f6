"""Whether all files that a stream goes on from are as they were written."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.app.root import App
from tidegate.errors import LakeDamaged
from tidegate.lake.manifest import DataFile, Manifest
from tidegate.lake.verify import verify
from tidegate.ledger import LedgerReader, ManifestRef, Stream


def damaged_files(app: App, stream: Stream) -> tuple[int, list[LakeDamaged]]:
    """Read every byte that the next batch, and the publication of the last one, need.

    Gives how many files there are, and what is wrong with those that are missing, short or changed, manifests
    included. Raises LakeUnavailable, LedgerUnavailable.
    """
    files: dict[str, DataFile] = {}
    found: list[LakeDamaged] = []
    known = [*dict.fromkeys(_needed(app.ledger, stream))]
    for manifest in _readable(app, stream, known, found):
        files |= {file.path: file for file in manifest.files}
    found += verify(app.lake(stream).store, list(files.values()))
    return len(known) + len(files), found


def _needed(ledger: LedgerReader, stream: Stream) -> Iterator[ManifestRef]:
    head = ledger.head(stream)
    yield from ledger.state_manifests(stream, head.seq)
    for seq in (head.seq, head.seq + 1):
        attempt = ledger.attempt(stream, seq) if seq else None
        if attempt is not None:
            yield attempt.manifest


def _readable(
    app: App, stream: Stream, known: list[ManifestRef], damaged: list[LakeDamaged]
) -> Iterator[Manifest]:
    for each in known:
        try:
            yield app.manifest(stream, each)
        except LakeDamaged as error:
            damaged.append(error)
