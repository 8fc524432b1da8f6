"""The folders and names of a stream's files.

    <lake>/<pipeline>/g<generation>/<stage>/state/_files/<name>/*.parquet    what a batch changed, per key
    <lake>/<pipeline>/g<generation>/<stage>/outbox/_files/<name>/*.parquet   what it emits
    <lake>/<pipeline>/g<generation>/quarantine/_files/<name>/*.parquet       input that could not be used
    <lake>/<pipeline>/g<generation>/manifests/<name>/manifest.json           which of these files exist
    <lake>/<pipeline>/g<generation>/marks/<batch>.json                       the ledger that committed it
    <lake>/<pipeline>/marks/<promotion>.json                                 the ledger that decided it

`name` is the name of an attempt at computing a batch, or of a snapshot of the state. A file counts if the
manifest names it, and the manifest counts if the ledger has its digest and the attempt is committed. Each
folder of a kind is also a Delta table, for other engines to read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from uuid import uuid4

from tidegate.storage.manifest import Kind
from tidegate.storage.marks import Marks
from tidegate.storage.store import Store

MANIFEST = "manifest.json"
"""The file name of a manifest, in a folder with the name of its attempt or snapshot."""

_RESOLUTION = "resolution-"
_NAME = re.compile(r"(?P<snapshot>snapshot-)?(?P<seq>\d{10,})(-(?P<epoch>\d{6,}))?-[0-9a-f]{8}")


def attempt_name(seq: int, epoch: int) -> str:
    """Return a new name for one computation of a batch. Names sort by batch, then by epoch.

    Example: `0000000012-000003-9f86d081`.
    """
    return f"{seq:010d}-{epoch:06d}-{uuid4().hex[:8]}"


def snapshot_name(seq: int) -> str:
    """Return a new name for a snapshot; no attempt has such a name.

    Example: `snapshot-0000000012-9f86d081`.
    """
    return f"snapshot-{seq:010d}-{uuid4().hex[:8]}"


def resolution_name(number: int) -> str:
    """Return a new name for a resolution of records in quarantine.

    `Name.parse` does not accept it, since it belongs to no batch.
    """
    return f"{_RESOLUTION}{number:010d}-{uuid4().hex[:8]}"


def is_resolution(name: str) -> bool:
    """Return whether a name of files is that of a resolution."""
    return name.startswith(_RESOLUTION)


@dataclass(frozen=True)
class Name:
    """The parts of a name of files: the batch, and the epoch of an attempt; None for a snapshot."""

    seq: int
    epoch: int | None

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """Return the parts of a name, the inverse of `attempt_name` and `snapshot_name`; None for any other
        text.
        """
        match = _NAME.fullmatch(text)
        # An attempt has an epoch and no prefix, a snapshot a prefix and no epoch; anything else is neither.
        if match is None or bool(match["snapshot"]) == bool(match["epoch"]):
            return None
        return cls(int(match["seq"]), int(match["epoch"]) if match["epoch"] else None)


@dataclass(frozen=True)
class Lake:
    """The files of one stream below the folder or URI `root`. Paths are relative to it."""

    root: str
    pipeline: str
    generation: int

    @cached_property
    def store(self) -> Store:
        """The store of the whole lake."""
        return Store(self.root)

    @property
    def base(self) -> str:
        """The stream's own folder."""
        return f"{self.pipeline}/g{self.generation}"

    def table(self, kind: Kind, stage: str = "") -> str:
        """Return the folder of a kind of files; `stage` is "" for quarantine, which all stages share."""
        return f"{self.base}/{stage}/{kind}" if stage else f"{self.base}/{kind}"

    def files(self, kind: Kind, stage: str, name: str) -> str:
        """Return the folder of an attempt's or a snapshot's files of one kind and stage."""
        return files_folder(self.table(kind, stage), name)

    def manifest(self, name: str) -> str:
        """Return the path of the manifest of an attempt or a snapshot."""
        return f"{self.base}/manifests/{name}/{MANIFEST}"

    @property
    def marks(self) -> Marks:
        """The marks of the stream's ledger."""
        return Marks(self.store, f"{self.base}/marks")

    def table_sink(self, path: str | None) -> str:
        """Return the path or URI of a `table` sink: `path` if it is absolute, else below the lake; None: the
        stream's own folder `published`.
        """
        if path is None:
            path = f"{self.base}/published"
        return path if path.startswith("/") or "://" in path else f"{self.root.rstrip('/')}/{path}"


def files_folder(table: str, name: str) -> str:
    """Return the folder of an attempt's or a snapshot's files in a table.

    A vacuum of the table does not look into folders whose name begins with an underscore.
    """
    return f"{table}/_files/{name}"
