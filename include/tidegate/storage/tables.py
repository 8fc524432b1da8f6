"""Tables for other engines: the committed rows of a stream, for readers that do not use tidegate.

A table's log names the very files that attempts and compactions wrote; nothing is copied. Therefore all files
of a table are below its own folder. They are in a hidden part of it, where maintenance by other programs does
not look for files that the log does not name yet:

    <table>/_files/<attempt or snapshot>/*.parquet

Each change is one commit, with names of applications, each with the number of a batch. A change is made for
one version of the table, and the format refuses it if another process was faster. Each writer looks at the
table first, and again after every commit and every error. So a change is applied exactly once, whichever
other processes are at work, and whichever answer was lost.

`storage.delta_tables` and `iceberg.tables` have the formats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from tidegate.errors import LakeDamaged, SettingsInvalid
from tidegate.storage.layout import Lake
from tidegate.storage.manifest import DataFile, Kind
from tidegate.storage.schema import SHARED_COLUMNS, STATE_COLUMNS
from tidegate.storage.store import Store

FORMAT = "1"
"""The format of what a table's log says about a stream; raise it when the meaning changes."""
FORMAT_PROPERTY = "tidegate.format"
LOGS = {"delta": "_delta_log", "iceberg": "metadata"}
"""Format of tables -> the folder in a table's folder that has the log."""
_TRIES = 20


@dataclass(frozen=True)
class TableChange:
    """The content of one commit.

    Args:
        numbers: application -> the batch that it is at afterwards.
        added: the files that the table gets.
        removed: the path of each removed file -> its bytes.
        is_rearranged: the same state as before, in other files.
        batch: returns facts about the batch whose files are added, for a log that has them.
    """

    numbers: Mapping[str, int]
    added: tuple[DataFile, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    is_rearranged: bool = False
    batch: Callable[[], Mapping[str, str]] = field(default=dict, compare=False)


class TableVersion(ABC):
    """An opened table at one version of its log, for which a change is decided."""

    conflict: type[Exception]
    """The error of a commit that another process has overtaken."""

    @abstractmethod
    def number(self, application: str) -> int:
        """Return the batch that an application is at; 0 before its first change."""

    @abstractmethod
    def files(self) -> dict[str, int]:
        """Return the path of each file, as manifests have it, and its bytes."""

    @abstractmethod
    def update(self) -> None:
        """Go to the newest version."""

    @abstractmethod
    def apply(self, change: TableChange) -> Exception | None:
        """Try to apply a change. Returns the error after which it may or may not be applied; None also if the
        caller has to look again.

        Raises SchemaChanged, LakeDamaged.
        """

    @abstractmethod
    def flush(self, change: TableChange) -> None:
        """Make what a change has written survive a power cut."""

    @abstractmethod
    def failure(self, error: Exception | None) -> Exception:
        """Return what to raise for the last error of `apply`; None: a change that is made again and again."""


NextChange = Callable[[TableVersion], "TableChange | None"]
"""Return the next change for a table as it is; None if there is none."""


@dataclass(frozen=True)
class SharedTable(ABC):
    """A table in a folder of the lake. It begins with `columns`, and has all columns of its added files.

    All files of one attempt, or snapshot, have the same columns.
    """

    store: Store
    folder: str
    columns: pa.Schema

    format_name: ClassVar[str]

    @abstractmethod
    def opened(self) -> AbstractContextManager[TableVersion | None]:
        """Open the table; None if there is none.

        Raises LakeDamaged when the existing table was not made by this version of tidegate, or not by this
        installation; and what keeps it from asking, also for errors inside of the block.
        """

    @abstractmethod
    def create(self) -> None:
        """Create the table without rows, unless another process was faster."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the table, but none of its data files. Raises LakeUnavailable, or the catalog's errors."""

    def expire(self, application: str, number: int, until: float) -> None:  # noqa: B027
        """Remove versions at which an application was before `number`: they name removed files.

        Files of the log that no version needs, and that are older than `until` (epoch seconds), go, too. A
        format that does so by itself does nothing.
        """

    def check(self, files: Sequence[DataFile] = ()) -> None:
        """Raise as `opened` does; SchemaChanged if the table cannot take the columns of files."""
        with self.opened():
            pass

    def number(self, application: str) -> int:
        """Return the batch that an application is at; 0 if there is no table. Raises as `opened`."""
        with self.opened() as table:
            return 0 if table is None else table.number(application)

    def catch_up(self, next_change: NextChange) -> None:
        """Apply changes until there is none.

        `next_change` is asked again after each try, with the table as it is then. If another process was
        faster, it has to return another change: as soon as one of a change's applications has moved.

        Raises LakeDamaged if another program made the table, or a file is missing or not below the table's
        folder; SettingsInvalid if the table is of another format; SchemaChanged if a column has two types of
        which neither is wider; what keeps it from asking; and what `next_change` raises.
        """
        with self.opened() as table:
            if table is not None:
                _catch_up(table, next_change)
                return
        self._require_no_other_format()
        self.create()
        with self.opened() as table:
            assert table is not None, "it was created"
            _catch_up(table, next_change)

    def _require_no_other_format(self) -> None:
        """Raise SettingsInvalid if the folder has a table of another format, which would stay behind."""
        for name, log in LOGS.items():
            if name != self.format_name and self.store.listed(f"{self.folder}/{log}"):
                raise SettingsInvalid(
                    f"The table {self.folder} has the format {name}, and TIDEGATE_TABLES asks for "
                    f"{self.format_name}",
                    f"Set TIDEGATE_TABLES back; or remove {self.store.uri(self.folder)}/{log}, and for "
                    "Iceberg the table in its catalog, and run again: the table is made anew from its files.",
                )

    def relative(self, path: str) -> str:
        """Return a file's path below the table's folder. Raises LakeDamaged if it is elsewhere."""
        relative = path.removeprefix(f"{self.folder}/")
        if relative == path:
            raise LakeDamaged(
                f"The file {path} is not below the table {self.folder}",
                "Use the version of tidegate that wrote the lake, or a newer one.",
            )
        return relative

    def require_format(self, existing: str | None) -> None:
        """Raise LakeDamaged unless the table's format is this version's. None: no tidegate made it."""
        if existing is None:
            raise LakeDamaged(
                f"The table {self.folder} was not made by tidegate",
                "Move it away, or set TIDEGATE_LAKE to a new place.",
            )
        if existing != FORMAT:
            raise LakeDamaged(
                f"The table {self.folder} has format {existing}; this tidegate writes {FORMAT}",
                "Use the version of tidegate that made it, or a newer one.",
            )


def _catch_up(table: TableVersion, next_change: NextChange) -> None:
    table.update()
    tries, change = 0, next_change(table)
    while change is not None:
        error = table.apply(change)
        # The answer of a commit can be lost: only the table shows whether the change was made.
        table.update()
        following = next_change(table)
        table.flush(change)
        tries = tries + 1 if following == change else 0
        # Without an error only columns were changed, or another process was faster: look again.
        is_conflict = error is None or isinstance(error, table.conflict)
        if tries == _TRIES or (tries and not is_conflict):
            raise table.failure(error) from error
        change = following


class TableFormat(ABC):
    """A format of tables for other engines."""

    @abstractmethod
    def table_in(self, store: Store, folder: str, columns: pa.Schema) -> SharedTable:
        """Return the table in a folder of the lake."""

    @abstractmethod
    def drop(self, lake: Lake) -> None:
        """Forget all tables of a stream whose files are removed."""

    def table(self, lake: Lake, kind: Kind, stage: str) -> SharedTable:
        """Return the table of a stage's state, or of its outbox."""
        columns = STATE_COLUMNS if kind == "state" else SHARED_COLUMNS
        return self.table_in(lake.store, lake.table(kind, stage), columns)
