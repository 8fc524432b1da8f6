"""The folders and names of a stream's files.

    <lake>/<pipeline>/g<generation>/<stage>/state/_files/<name>/*.parquet    what a batch changed, per key
    <lake>/<pipeline>/g<generation>/<stage>/outbox/_files/<name>/*.parquet   what it emits
    <lake>/<pipeline>/g<generation>/quarantine/_files/<name>/*.parquet       input that could not be used
    <lake>/<pipeline>/g<generation>/manifests/<name>/manifest-<digest>.json  which of these files exist
    <lake>/<pipeline>/g<generation>/marks/<batch>.json                       the ledger that committed it
    <lake>/<pipeline>/marks/<promotion>.json                                 the ledger that decided it

`name` is the name of an attempt at computing a batch, or of a snapshot of the state. A file counts if the
manifest names it, and the manifest counts if the ledger has its digest and the attempt is committed. Each
folder of a kind is also a Delta table, for other engines to read.

A mark names the ledger that owns a folder, and its last decision. In a stream's folder a mark has the number
of a committed batch and the name of its attempt; the mark of batch 0 names the ledger that began the stream.
That mark stays, and the two newest of the others. In a pipeline's folder a mark has the number of a
promotion, the generation that was put in charge, and the decision itself. All of these stay: a ledger that
was restored learns from them what it has lost. A mark is a small file that is put only if it is absent. Only
a ledger that takes over a folder replaces its marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any
from uuid import uuid4

from tidegate.errors import LakeDamaged
from tidegate.failpoints import failpoint
from tidegate.storage.manifest import Kind
from tidegate.storage.store import Store

FORMAT = 1
"""The format of a mark; raise it when the meaning of what is written changes."""

_MARK_NAME = re.compile(r"(\d{10,})\.json")


@dataclass(frozen=True)
class LedgerMark:
    """A decision of the ledger with the identity `ledger`: a number, and the name that it has in that ledger.

    `decision` is the row of a promotion; None: the mark is of a batch. Two marks with one number and name are
    of the same decision.
    """

    ledger: str
    number: int
    name: str
    decision: Mapping[str, Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Marks:
    """The marks in the folder `folder`. `keeps_all`: none is removed when a newer one is put."""

    store: Store
    folder: str
    keeps_all: bool = False

    def newest(self) -> LedgerMark | None:
        """Return the mark with the highest number; None before the first one.

        Raises LakeDamaged, LakeUnavailable.
        """
        with failpoint("marks.read"):
            number = max(self._numbers(), default=None)
            try:
                return None if number is None else self._read(number)
            except LakeDamaged:
                if number == max(self._numbers(), default=None):
                    raise
        # two newer marks were put since the listing, and this one was removed: look again
        return self.newest()

    def put(self, mark: LedgerMark) -> None:
        """Write a mark, unless its number has one, and remove the marks of batches that nobody needs after
        it.

        Raises LakeUnavailable.
        """
        with failpoint("marks.put"):
            self.store.put_if_absent(self.path(mark.number), _content(mark))
        for number in () if self.keeps_all else self._numbers():
            # A reader that listed the folder before `put` may still open the last but one.
            if 0 < number < mark.number - 1:
                self.remove(number)

    def remove(self, number: int) -> None:
        """Remove the mark of a number. Raises LakeUnavailable."""
        with failpoint("marks.remove"):
            self.store.delete(self.path(number))

    def adopt(self, ledger: str) -> None:
        """Write another ledger's identity into all marks.

        The newest mark says which ledger owns the folder, so it is written last: until then the folder is not
        taken over, and a takeover that was killed begins again. Raises LakeDamaged, LakeUnavailable.
        """
        # In ascending order: the newest mark is the last one.
        for mark in self.all():
            with failpoint("marks.adopt"):
                self.store.replace(self.path(mark.number), _content(replace(mark, ledger=ledger)))

    def all(self) -> list[LedgerMark]:
        """Return all marks, by number. Raises LakeDamaged, LakeUnavailable."""
        return [self._read(number) for number in sorted(self._numbers())]

    def path(self, number: int) -> str:
        """Return the path of the mark with a number."""
        return f"{self.folder}/{number:010d}.json"

    def _numbers(self) -> Iterator[int]:
        for file in self.store.listed(self.folder):
            if match := _MARK_NAME.fullmatch(file.path.rpartition("/")[-1]):
                yield int(match[1])

    def _read(self, number: int) -> LedgerMark:
        path = self.path(number)
        try:
            document = json.loads(self.store.read(path))
            if document.pop("format") == FORMAT:
                return LedgerMark(**document)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _unreadable(path) from error
        raise _unreadable(path)


def _content(mark: LedgerMark) -> bytes:
    fields = {name: value for name, value in asdict(mark).items() if value is not None}
    return json.dumps({"format": FORMAT} | fields).encode()


def _unreadable(path: str) -> LakeDamaged:
    return LakeDamaged(
        f"The lake's file {path}, which names the ledger that owns the folder, cannot be read",
        "Restore it from a backup, or use the version of tidegate that wrote it.",
    )


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

    def manifests(self, name: str) -> str:
        """Return the folder of the manifest of an attempt or a snapshot."""
        return f"{self.base}/manifests/{name}"

    @property
    def marks(self) -> Marks:
        """The marks of the stream's ledger."""
        return Marks(self.store, f"{self.base}/marks")

    @property
    def published(self) -> str:
        """The folder of a `table` sink that is the stream's own."""
        return f"{self.base}/published"

    def table_sink(self, path: str | None) -> str:
        """Return the path or URI of a `table` sink: `path` if it is absolute, else below the lake; None: the
        stream's own folder `published`.
        """
        path = self.published if path is None else path
        return path if path.startswith("/") or "://" in path else f"{self.root.rstrip('/')}/{path}"


def files_folder(table: str, name: str) -> str:
    """Return the folder of an attempt's or a snapshot's files in a table.

    A vacuum of the table does not look into folders whose name begins with an underscore.
    """
    return f"{table}/_files/{name}"
