"""Where a stream's files are, and what they are called.

    <lake>/<pipeline>/g<generation>/<stage>/state/_files/<name>/*.parquet    what a batch changed, per key
    <lake>/<pipeline>/g<generation>/<stage>/outbox/_files/<name>/*.parquet   what it sends out
    <lake>/<pipeline>/g<generation>/quarantine/_files/<name>/*.parquet       input that could not be used
    <lake>/<pipeline>/g<generation>/manifests/<name>/manifest.json           which of these files there are
    <lake>/<pipeline>/g<generation>/marks/<batch>.json                       the ledger that committed it
    <lake>/<pipeline>/marks/<promotion>.json                                 the ledger that decided it

`name` is that of an attempt at computing a batch, or of a snapshot of the state. A file counts when the
manifest names it, and the manifest when the ledger has its digest and says that the attempt is committed.
Each folder of a kind is a Delta table, too, for others to read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from uuid import uuid4

from tidegate.lake.manifest import Kind
from tidegate.lake.marks import Marks
from tidegate.lake.store import Store

MANIFEST = "manifest.json"
"""How a manifest is called, in a folder that has its name."""

_RESOLUTION = "resolution-"
_NAME = re.compile(r"(?P<snapshot>snapshot-)?(?P<seq>\d{10,})(-(?P<epoch>\d{6,}))?-[0-9a-f]{8}")


def attempt_name(seq: int, epoch: int) -> str:
    """A name that no other computation of any batch has: sorts by batch, then by epoch."""
    return f"{seq:010d}-{epoch:06d}-{uuid4().hex[:8]}"


def snapshot_name(seq: int) -> str:
    """A name that no other snapshot has, and no attempt."""
    return f"snapshot-{seq:010d}-{uuid4().hex[:8]}"


def resolution_name(number: int) -> str:
    """A name that no other resolution of records in quarantine has.

    It is no `Name`: no batch has it.
    """
    return f"{_RESOLUTION}{number:010d}-{uuid4().hex[:8]}"


def is_resolution(name: str) -> bool:
    """Whether a name of files is that of a resolution."""
    return name.startswith(_RESOLUTION)


@dataclass(frozen=True)
class Name:
    """What a name of files tells: the batch, and the epoch of an attempt; None: it is a snapshot's."""

    seq: int
    epoch: int | None

    @classmethod
    def parse(cls, text: str) -> Name | None:
        """The inverse of `attempt_name` and `snapshot_name`; None for what is neither."""
        match = _NAME.fullmatch(text)
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
        """The folder of a kind; `stage` is "" for quarantine, which all stages share."""
        return f"{self.base}/{stage}/{kind}" if stage else f"{self.base}/{kind}"

    def files(self, kind: Kind, stage: str, name: str) -> str:
        """The folder in it of an attempt or a snapshot."""
        return files_folder(self.table(kind, stage), name)

    def manifest(self, name: str) -> str:
        """The manifest of an attempt or a snapshot."""
        return f"{self.base}/manifests/{name}/{MANIFEST}"

    @property
    def marks(self) -> Marks:
        """The marks of the stream's ledger."""
        return Marks(self.store, f"{self.base}/marks")

    def table_sink(self, path: str | None) -> str:
        """Where a `table` sink goes: an absolute path or URI, a name under the lake, or our own folder."""
        if path is None:
            path = f"{self.base}/published"
        return path if path.startswith("/") or "://" in path else f"{self.root.rstrip('/')}/{path}"


def files_folder(table: str, name: str) -> str:
    """Where a table's files of an attempt or a snapshot are: a vacuum of the table does not look there."""
    return f"{table}/_files/{name}"
