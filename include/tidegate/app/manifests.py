"""Find the files of a stream's batches and snapshots by the manifests in the ledger, and name who needs a
file that is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tidegate.app.root import App
from tidegate.errors import LakeDamaged
from tidegate.ledger import LedgerReader, ManifestRef, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.storage.evolution import NO_ALIASES, Aliases, state_aliases
from tidegate.storage.manifest import DataFile, Manifest

StateFiles = dict[str, tuple[DataFile, ...]]
"""Stage -> the files of its state, oldest first. A later file's row of an entry replaces an earlier one."""


def batch_named(stream: Stream, seq: int) -> str:
    """Return the name of a batch as the reader of its own files: of a step, or of a person who views its
    emissions.
    """
    return f"Batch {seq} of {stream}"


def state_named(stream: Stream, seq: int) -> str:
    """Return the name of the state after a batch as the reader of files, which belong to many batches."""
    return f"The state after batch {seq} of {stream}"


@contextmanager
def needed_by(reader: str) -> Iterator[None]:
    """Let a LakeDamaged from inside of the block say that `reader` needs the file.

    If blocks are nested, the innermost one is named. Raises LakeDamaged.

    Example:
        with needed_by(batch_named(stream, seq)):
            manifest = app.manifest(stream, reference)
    """
    try:
        yield
    except LakeDamaged as error:
        named = error.needed_by(reader)
        if named is error:
            raise
        raise named from error


def read_manifests(app: App, stream: Stream, references: Iterable[ManifestRef]) -> list[Manifest]:
    """Return the manifests, in the order of `references`.

    Raises LakeDamaged if one is missing or changed, LakeUnavailable if the store does not answer.
    """
    return [app.manifest(stream, reference) for reference in references]


def state_files(manifests: Sequence[Manifest]) -> StateFiles:
    """Return the state files of all manifests, by stage and in the order of the manifests."""
    files_by_stage: StateFiles = {}
    for manifest in manifests:
        for file in manifest.files:
            if file.kind == "state":
                files_by_stage[file.stage] = (*files_by_stage.get(file.stage, ()), file)
    return files_by_stage


def state_after(app: App, stream: Stream, references: Iterable[ManifestRef]) -> StateFiles:
    """Return the state files of the manifests, as `LedgerReader.state_manifests` names them.

    Raises LakeDamaged if a manifest is missing or changed, LakeUnavailable if the store does not answer.

    Example:
        state_after(app, stream, app.ledger.state_manifests(stream, up_to=7))
    """
    return state_files(read_manifests(app, stream, references))


def aliases_of(ledger: LedgerReader, stream: Stream, seq: int, stage: str) -> Aliases:
    """Return the older names of a stage's columns by the plan of a batch; none if the ledger has no such plan
    any more.
    """
    plan = ledger.plan(stream, seq)
    stages = planned_pipeline(plan).stages if plan is not None else ()
    # A stage that the plan no longer has keeps the names that its files have.
    return next((state_aliases(candidate) for candidate in stages if candidate.name == stage), NO_ALIASES)
