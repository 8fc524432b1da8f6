"""Find which records in quarantine are open: no batch replays them, and nobody has discarded them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.ledger import LedgerReader, ManifestRef, Resolution, Stream
from tidegate.quarantine.database import DuckDatabase, open_database
from tidegate.storage.manifest import DataFile
from tidegate.storage.quarantine_files import IDENTITY, RowBounds, row_groups

OPEN = 0
"""The number of an open record, in place of that of a resolution."""
# A part is null if the whole record is in quarantine.
_IS_SAME = " AND ".join(f'rows."{name}" IS NOT DISTINCT FROM other."{name}"' for name in IDENTITY)
NOT_RESOLVED = f"NOT EXISTS (SELECT 1 FROM resolved AS other WHERE {_IS_SAME})"
"""SQL: whether a record of `rows` is open, once its batch is loaded."""
RESOLUTION = f"coalesce((SELECT max(number) FROM resolved AS other WHERE {_IS_SAME}), {OPEN})"
"""SQL: the number of the resolution of a record of `rows`, or OPEN."""
_IS_QUARANTINED = f"EXISTS (SELECT 1 FROM quarantined AS other WHERE {_IS_SAME})"
_COLUMNS = '(topic VARCHAR, "partition" INTEGER, "offset" BIGINT, part INTEGER, seq BIGINT{})'


class Status(str, Enum):
    """The status of a quarantined record."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True)
class Decision:
    """A record's status, and the resolution that decided it; None if the record is open."""

    resolution: Resolution | None

    @property
    def status(self) -> Status:
        """The status."""
        if self.resolution is None:
            return Status.OPEN
        return Status.DISCARDED if self.resolution.seq is None else Status.REPLAYED

    def __str__(self) -> str:
        resolution = self.resolution
        if resolution is not None and resolution.seq is not None:
            return f"{self.status.value} in batch {resolution.seq}"
        return self.status.value


class ResolvedRecords:
    """The resolutions of records in quarantine at one instant, looked up by the records' positions.

    The records of a batch are loaded when they are first asked for. Methods raise LakeDamaged and
    LakeUnavailable.
    """

    def __init__(
        self, app: App, stream: Stream, database: DuckDatabase, ledger: LedgerReader | None = None
    ) -> None:
        ledger = ledger or app.ledger
        self._app, self._stream, self._database, self._ledger = app, stream, database, ledger
        self.resolutions: dict[int, Resolution] = {made.number: made for made in ledger.resolutions(stream)}
        self.expired = ledger.expired(stream, "quarantine").seq
        """Quarantine of batches up to this one is not read any more."""
        self._loaded: set[int] = set()
        self._loaded_batches: set[int] = set()
        database.run(f"CREATE TABLE resolved {_COLUMNS.format(', number BIGINT')}")
        database.run(f"CREATE TABLE quarantined {_COLUMNS.format('')}")

    @cached_property
    def _committed(self) -> dict[int, ManifestRef]:
        """The committed batches: rows of an attempt that was never committed are in no quarantine."""
        # late: a stream can have 100,000 batches, and a page asks only about rows that are in quarantine
        return dict(self._ledger.committed(self._stream, self.expired))

    def load(self, seq: int) -> None:
        """Load the resolutions of records of a batch into the table `resolved`."""
        for number, resolution in self.resolutions.items() if seq > self.expired else ():
            # One resolution may cover many batches; its file is loaded once, for all of them.
            is_affected = resolution.first_batch <= seq <= resolution.last_batch
            if is_affected and number not in self._loaded:
                self._loaded.add(number)
                files = self._app.manifest(self._stream, resolution.manifest).files_of("quarantine")
                self._insert(f"resolved SELECT * EXCLUDE row, {number}", files)

    def numbers(self, rows: pa.Table) -> pa.Int64Array:
        """Return, for each row, the number of its resolution, or OPEN.

        Args:
            rows: The columns `IDENTITY`. The result has their length and order, and a null where no batch has
                put such a record into quarantine.

        Example::

            open_rows = rows.filter(pc.equal(resolved.numbers(rows), OPEN))
        """
        for seq in pc.unique(rows["seq"]).to_pylist():
            if seq in self._committed and seq not in self._loaded_batches:
                self._loaded_batches.add(seq)
                files = self._app.manifest(self._stream, self._committed[seq]).files_of("quarantine")
                self._insert("quarantined SELECT * EXCLUDE row", files)
        return self._numbers(rows, f"CASE WHEN {_IS_QUARANTINED} THEN {RESOLUTION} END")

    def decisions_on(self, rows: pa.Table) -> list[Decision]:
        """Return the decision on each row that was read from quarantine. Rows need the columns `IDENTITY`.

        Only the files of resolutions are read: these records are certainly in quarantine.
        """
        numbers = self._numbers(rows, RESOLUTION).to_pylist()
        return list(map(self.decision, numbers))

    def decision(self, number: int) -> Decision:
        """Return the decision that the number of a resolution, or OPEN, stands for."""
        return Decision(self.resolutions.get(number))

    def _numbers(self, rows: pa.Table, number: str) -> pa.Int64Array:
        rows = rows.select(IDENTITY)
        for seq in pc.unique(rows["seq"]).to_pylist():
            self.load(seq)
        sql = f"SELECT CAST({number} AS BIGINT) AS number FROM rows ORDER BY row"
        return self._database.query(sql, rows=rows)["number"].combine_chunks()

    def _insert(self, into: str, files: tuple[DataFile, ...]) -> None:
        for file in files:
            # Positions only: keys and values of the records are never loaded here.
            for group in row_groups(self._app.lake(self._stream).store, file, RowBounds()):
                self._database.run(f"INSERT INTO {into} FROM rows", rows=group.read(IDENTITY))


@contextmanager
def open_decisions(app: App, stream: Stream) -> Iterator[ResolvedRecords]:
    """Open the decisions on a stream's records, as the ledger has them now.

    Example::

        with open_decisions(app, stream) as resolved:
            decisions = resolved.decisions_on(rows)
    """
    with open_database() as database:
        yield ResolvedRecords(app, stream, database)
