"""The list of an attempt's files. What stands in no committed manifest does not exist.

A manifest is a JSON file; the ledger has its digest. It has two of each file: one of all of it, which only
`doctor --deep` compares, and one of its footer, by which whoever opens the file knows that it is this one. A
footer names its file, and says where pages begin and which rows they have; pages have checksums. So none of
them can be missing, short or another's without being noticed, and nobody reads more for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from tidegate.errors import LakeDamaged
from tidegate.lake.store import Store, Written, written_of

FORMAT = 2
"""Of manifests and of the files that they name; raised whenever what is written changes its meaning."""

Kind = Literal["state", "outbox", "quarantine"]


@dataclass(frozen=True)
class DataFile:
    """A Parquet file. `stage` is "" for quarantine; `least_hash`, `most_hash`: of the keys in it, if sorted
    by them. `key_types`, of state: the columns that its keys are texts of, with their types (see
    `engine.key_types`); None: the records' own keys. `aliases`, of state: what its columns were called in
    older files (see `lake.evolution`). The last `footer_bytes` have the SHA-256 `footer_digest`.
    """

    kind: Kind
    stage: str
    path: str
    rows: int
    bytes: int
    digest: str
    footer_bytes: int
    footer_digest: str
    least_hash: int | None = None
    most_hash: int | None = None
    key_types: str | None = None
    aliases: str | None = None


@dataclass(frozen=True)
class Manifest:
    """The files of an attempt or a snapshot, each of its kind and stage in the order of their hashes."""

    name: str
    seq: int
    files: tuple[DataFile, ...]

    def of(self, kind: Kind, stage: str = "") -> tuple[DataFile, ...]:
        """The files of one kind and stage."""
        return tuple(file for file in self.files if (file.kind, file.stage) == (kind, stage))

    @property
    def rows(self) -> int:
        """Rows of all files together."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.bytes for file in self.files)


def manifest_of(name: str, seq: int, files: Iterable[DataFile]) -> Manifest:
    """A manifest; the order in which tasks told of their files does not matter."""

    def order(file: DataFile) -> tuple[str, str, int, str]:
        return file.kind, file.stage, file.least_hash or 0, file.path

    return Manifest(name, seq, tuple(sorted(files, key=order)))


def write_manifest(store: Store, path: str, manifest: Manifest) -> Written:
    """Write it, durably; what is returned goes into the ledger. Raises LakeUnavailable."""
    return store.write(path, json.dumps({"format": FORMAT} | asdict(manifest)).encode())


def read_manifest(store: Store, path: str, written: Written) -> Manifest:
    """The manifest as it was written. Raises LakeDamaged when it is not that, LakeUnavailable."""
    content = store.read(path)
    if written_of(content) != written:
        raise damaged(
            path, f"it has {len(content)} bytes, which are not the {written.bytes} that were written"
        )
    document = json.loads(content)
    format_ = document.pop("format")
    if format_ < FORMAT:
        raise LakeDamaged(
            f"The manifest {path} is of a tidegate from before the first release (format {format_})",
            "Raise `generation` in the pipeline file: it starts with a state of its own.",
        )
    if format_ != FORMAT:
        raise LakeDamaged(
            f"The manifest {path} has format {format_}; this tidegate reads {FORMAT}",
            "Use the version of tidegate that wrote it, or a newer one.",
        )
    return Manifest(document["name"], document["seq"], tuple(DataFile(**file) for file in document["files"]))


def damaged(path: str, why: str) -> LakeDamaged:
    """What whoever finds a file changed is told."""
    return LakeDamaged(
        f"The lake's file {path} is not as it was written: {why}",
        "Restore it; `tidegate doctor --deep` names all that is damaged. Or raise `generation`.",
    )
