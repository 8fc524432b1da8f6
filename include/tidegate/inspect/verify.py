"""Whether all files that a stream goes on from are as they were written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    needed = _needed(app.ledger, stream)
    for manifest, state_too in _readable(app, stream, needed, found):
        files |= {file.path: file for file in manifest.files if state_too or file.kind != "state"}
    found += verify(app.lake(stream).store, list(files.values()))
    return len(needed) + len(files), found


def _needed(ledger: LedgerReader, stream: Stream) -> dict[ManifestRef, bool]:
    """Manifests, and whether the state in them is needed: that of the last batch, where it is read through a
    snapshot, may have been cleaned away."""
    head = ledger.head(stream)
    needed = dict.fromkeys(ledger.state_manifests(stream, head.seq), True)
    for seq, state_too in ((head.seq, False), (head.seq + 1, True)):
        attempt = ledger.attempt(stream, seq) if seq else None
        if attempt is not None:
            needed.setdefault(attempt.manifest, state_too)
    return needed


def _readable(
    app: App, stream: Stream, needed: Mapping[ManifestRef, bool], damaged: list[LakeDamaged]
) -> Iterator[tuple[Manifest, bool]]:
    for known, state_too in needed.items():
        try:
            yield app.manifest(stream, known), state_too
        except LakeDamaged as error:
            damaged.append(error)
