"""The files of a stream's batches and snapshots, by the manifests that the ledger knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.app.root import App
from tidegate.lake.aliases import NO_ALIASES, Aliases, state_aliases
from tidegate.lake.manifest import DataFile, Manifest
from tidegate.ledger import LedgerReader, ManifestRef, Stream
from tidegate.ledger.planned import planned_pipeline

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


def aliases_of(ledger: LedgerReader, stream: Stream, seq: int, stage: str) -> Aliases:
    """What a batch's plan says of the older names of a stage's columns: none, if it is not kept any more."""
    plan = ledger.plan(stream, seq)
    stages = planned_pipeline(plan).stages if plan is not None else ()
    return next((state_aliases(each) for each in stages if each.name == stage), NO_ALIASES)
