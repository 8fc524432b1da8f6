"""The list of an attempt's files. A file that is in no committed manifest does not exist.

A manifest is a JSON file, whose digest the ledger has. A manifest has two digests of each file: one of the
whole file, which only `doctor --deep` compares, and one of its footer, by which each reader recognizes the
file. A footer names its file, and says where pages begin and which rows they have; pages have checksums. So a
file that is missing, short or another file's is always noticed, and nobody reads more bytes for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from tidegate.errors import LakeDamaged
from tidegate.storage.store import Store, Written, written_of

FORMAT = 2
"""The format of manifests and of the files that they name; raise it when the meaning of what is written
changes.
"""

Kind = Literal["state", "outbox", "quarantine"]


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of an attempt or a snapshot.

    Args:
        stage: the stage's name; "" for quarantine.
        path: relative to the lake's root.
        digest: the SHA-256 of all bytes, in hexadecimal.
        footer_bytes: the length of the footer, which has the SHA-256 `footer_digest`.
        least_hash: the least hash of the keys in the file, `most_hash` the greatest; None if not sorted.
        key_types: for state: the columns of which its keys are texts, with their types (see
            `spark.steps`); None: keys are the records' own.
        aliases: for state: the names of its columns in older files (see `storage.evolution`).
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

    def files_of(self, kind: Kind, stage: str = "") -> tuple[DataFile, ...]:
        """Return the files of one kind and stage."""
        return tuple(file for file in self.files if (file.kind, file.stage) == (kind, stage))

    def without_expired(self, expired: Mapping[Kind, int]) -> Manifest:
        """Return the manifest without files that have expired.

        Args:
            expired: kind -> the last batch whose files of this kind are not read any more.
        """
        return replace(self, files=tuple(file for file in self.files if self.seq > expired.get(file.kind, 0)))

    @property
    def rows(self) -> int:
        """The number of rows of all files together."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of all files together."""
        return sum(file.bytes for file in self.files)


def manifest_of(name: str, seq: int, files: Iterable[DataFile]) -> Manifest:
    """Return a manifest of the files, sorted, so that the order in which tasks reported them does
    not matter.
    """

    def order(file: DataFile) -> tuple[str, str, int, str]:
        return file.kind, file.stage, file.least_hash or 0, file.path

    return Manifest(name, seq, tuple(sorted(files, key=order)))


def write_manifest(store: Store, folder: str, manifest: Manifest) -> Written:
    """Write a manifest durably into `folder`, and return its size and digest for the ledger. Raises
    LakeUnavailable.
    """
    content = json.dumps({"format": FORMAT} | asdict(manifest)).encode()
    return store.write(f"{folder}/{manifest_file(written_of(content).digest)}", content)


def manifest_file(digest: str) -> str:
    """Return the file name of the manifest with a digest.

    The name has a part of the digest: an erasure writes another manifest of the same attempt, and readers
    that began before still find the one that they look for.
    """
    return f"manifest-{digest[:16]}.json"


def is_manifest(name: str) -> bool:
    """Return whether a file name is that of a manifest."""
    return name.startswith("manifest-")


def read_manifest(store: Store, folder: str, written: Written) -> Manifest:
    """Return the manifest in `folder` that was written with that digest.

    Raises LakeDamaged if its bytes are not those that were written, or another version of tidegate wrote it;
    raises LakeUnavailable if the store fails.
    """
    path = f"{folder}/{manifest_file(written.digest)}"
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
    """Return the error for a file that is not as it was written."""
    return LakeDamaged(
        f"The lake's file {path} is not as it was written: {why}",
        "Restore it; `tidegate doctor --deep` names all that is damaged. Or raise `generation`.",
    )
