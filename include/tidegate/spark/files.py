"""The files that one try of one task writes for an attempt."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from uuid import uuid4

import pyarrow as pa

from tidegate.failpoints import failpoint
from tidegate.storage.layout import Lake
from tidegate.storage.manifest import DataFile, Kind
from tidegate.storage.writer import RowWriter


@dataclass(frozen=True)
class AttemptFiles:
    """The place of an attempt's files: folders of its name, which nothing reads before a manifest
    names them.
    """

    lake: Lake
    attempt: str

    def writers(self, stage: str, slot: int) -> Writers:
        """Return the writers of one try of a task. Use them as a context manager."""
        return Writers(self, stage, slot)


class Writers:
    """A file of each kind, made with its first row, under names that no other try has.

    `files` has the written files after the end of the block.
    """

    def __init__(self, attempt: AttemptFiles, stage: str, slot: int) -> None:
        self._attempt, self._stage, self._slot = attempt, stage, slot
        # Spark can run two tries of one task at once: each writes under names of its own.
        self._try = uuid4().hex[:12]
        self._open = ExitStack()
        self._writers: dict[Kind, RowWriter] = {}
        self.files: tuple[DataFile, ...] = ()

    def __enter__(self) -> Writers:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # With the error, the writers give up their files instead of completing them.
            self._open.__exit__(type_, error, trace)
            return
        with failpoint("compute.files"):
            self._open.close()
        self.files = tuple(writer.file for writer in self._writers.values() if writer.file is not None)

    def write(self, kind: Kind, rows: pa.RecordBatch) -> None:
        """Add rows of a kind; all stages share one quarantine. Raises LakeUnavailable."""
        if kind not in self._writers:
            lake, stage = self._attempt.lake, "" if kind == "quarantine" else self._stage
            folder = lake.files(kind, stage, self._attempt.attempt)
            writer = RowWriter(lake.store, f"{folder}/{self._slot:05d}-{self._try}.parquet", kind, stage)
            self._writers[kind] = self._open.enter_context(writer)
        with failpoint(f"compute.write_{kind}"):
            self._writers[kind].write(rows)
