"""The files of a stream's batches and snapshots, by the manifests that the ledger knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.app.root import App
from tidegate.lake.manifest import DataFile, Manifest
from tidegate.ledger import ManifestRef, Stream

StateFiles = dict[str, tuple[DataFile, ...]]
"""Stage -> the files that its state is read from, the oldest first."""


def read_manifests(app: App, stream: Stream, known: Iterable[ManifestRef]) -> list[Manifest]:
    """The manifests, in the same order. Raises LakeDamaged, LakeUnavailable."""
    return [app.manifest(stream, each) for each in known]


def state_files(manifests: Sequence[Manifest]) -> StateFiles:
    """The state in all of them together."""
    found: StateFiles = {}
    for manifest in manifests:
        for file in manifest.files:
            if file.kind == "state":
                found[file.stage] = (*found.get(file.stage, ()), file)
    return found


def state_after(app: App, stream: Stream, known: Iterable[ManifestRef]) -> StateFiles:
    """The state that these manifests of the ledger have left. Raises LakeDamaged, LakeUnavailable."""
    return state_files(read_manifests(app, stream, known))
