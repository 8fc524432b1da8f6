"""Find which records in quarantine are open: no batch replays them, and nobody has discarded them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.root import App
from tidegate.lake.quarantine_files import IDENTITY, QUARANTINE, RowCondition, row_groups
from tidegate.ledger import LedgerReader, Resolution, Stream

OPEN = 0
"""The number of an open record, in place of that of a resolution."""
_WHOLE = -2
"""Stands for a null in `part`, which means the whole record: Arrow's join never matches nulls."""
_KEY = [name for name in IDENTITY if name != "seq"]
_CACHED = 16
_IDENTITIES = pa.schema([*(QUARANTINE.field(name) for name in _KEY), ("number", pa.int64())])


class ResolvedRecords:
    """The resolutions of records in quarantine at one instant, looked up by the records' positions.

    It takes about 30 bytes for each record of the batches and resolutions that were used last (at most 16 of
    each). Raises LakeDamaged, LakeUnavailable.

    Example:
        open_rows = rows.filter(pc.equal(ResolvedRecords(app, stream, ledger).numbers(rows), OPEN))
    """

    def __init__(self, app: App, stream: Stream, ledger: LedgerReader) -> None:
        self._app, self._stream = app, stream
        self.resolutions: dict[int, Resolution] = {r.number: r for r in ledger.resolutions(stream)}
        self.expired = ledger.expired_quarantine(stream).seq
        """Quarantine of batches up to this one is not read any more."""
        self._committed = dict(ledger.committed(stream, self.expired))
        self._batches: OrderedDict[int, pa.Table] = OrderedDict()
        self._files: OrderedDict[int, pa.Table] = OrderedDict()

    def numbers(self, rows: pa.Table) -> pa.Int64Array:
        """Return, for each row, the number of its resolution, or OPEN.

        `rows` has the columns `IDENTITY`. The result has the length and order of `rows`; null if no batch has
        put such a record into quarantine. Raises LakeDamaged, LakeUnavailable.
        """
        keyed = _keyed(rows).append_column("seq", rows["seq"])
        keyed = keyed.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
        parts = [pa.table({"row": pa.array([], pa.int64()), "number": pa.array([], pa.int64())})]
        for seq in pc.unique(rows["seq"]).to_pylist():
            asked = keyed.filter(pc.equal(keyed["seq"], seq)).drop_columns(["seq"])
            parts.append(asked.join(self._batch(seq), _KEY, join_type="left outer").select(["row", "number"]))
        return pa.concat_tables(parts).sort_by("row")["number"].combine_chunks()

    def of_quarantined(self, rows: pa.Table) -> pa.Int64Array:
        """Return the same numbers as `numbers`, for rows that were read from quarantine.

        Since these records are certainly in quarantine, only the files of resolutions are read, not those of
        the batches. Raises LakeDamaged, LakeUnavailable.
        """
        keyed = _keyed(rows).append_column("seq", rows["seq"])
        keyed = keyed.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
        numbers = np.zeros(rows.num_rows, np.int64)
        for seq in pc.unique(rows["seq"]).to_pylist():
            resolved = [table for table in self._resolved(seq) if table.num_rows]
            if resolved:
                asked = keyed.filter(pc.equal(keyed["seq"], seq)).drop_columns(["seq"])
                decided = asked.join(pa.concat_tables(resolved), _KEY, join_type="inner")
                numbers[decided["row"].to_numpy()] = decided["number"].to_numpy()
        return pa.array(numbers)

    def _batch(self, seq: int) -> pa.Table:
        """Return the records that a batch has put into quarantine, each once, with the number of its
        resolution.
        """
        if seq not in self._batches:
            put = pa.concat_tables([_IDENTITIES.empty_table().select(_KEY), *self._quarantined(seq)])
            put = put.group_by(_KEY, use_threads=False).aggregate([])
            resolved = pa.concat_tables([_IDENTITIES.empty_table(), *self._resolved(seq)])
            resolved = resolved.group_by(_KEY, use_threads=False).aggregate([("number", "max")])
            joined = put.join(resolved, _KEY, join_type="left outer")
            numbers = pc.fill_null(joined["number_max"], OPEN)
            _put(self._batches, seq, joined.select(_KEY).append_column("number", numbers))
        return self._batches[seq]

    def _quarantined(self, seq: int) -> Iterator[pa.Table]:
        if seq not in self._committed:
            return
        store = self._app.lake(self._stream).store
        for file in self._app.manifest(self._stream, self._committed[seq]).files_of("quarantine"):
            for group in row_groups(store, file, RowCondition()):
                yield _keyed(group.read(_KEY))

    def _resolved(self, seq: int) -> Iterator[pa.Table]:
        for number, resolution in self.resolutions.items() if seq > self.expired else ():
            if resolution.first_batch <= seq <= resolution.last_batch:
                records = self._records(resolution)
                keys = records.filter(pc.equal(records["seq"], seq)).drop_columns(["seq"])
                numbers = pa.repeat(pa.scalar(number, pa.int64()), keys.num_rows)
                yield keys.append_column("number", numbers)

    def _records(self, resolution: Resolution) -> pa.Table:
        """Return the identities (columns `IDENTITY`) of the records of a resolution."""
        if resolution.number not in self._files:
            store = self._app.lake(self._stream).store
            files = self._app.manifest(self._stream, resolution.manifest).files_of("quarantine")
            tables = [
                group.read(IDENTITY) for file in files for group in row_groups(store, file, RowCondition())
            ]
            rows = pa.concat_tables(tables)
            _put(self._files, resolution.number, _keyed(rows).append_column("seq", rows["seq"]))
        return self._files[resolution.number]


def _keyed(rows: pa.Table) -> pa.Table:
    """Return the columns by which records are compared, without nulls."""
    columns = [pc.fill_null(rows[name], _WHOLE) if name == "part" else rows[name] for name in _KEY]
    return pa.table(columns, schema=pa.schema([_IDENTITIES.field(name) for name in _KEY]))


def _put(cache: OrderedDict[int, pa.Table], number: int, table: pa.Table) -> None:
    """Cache a table, and drop the one that was used least recently."""
    cache[number] = table
    while len(cache) > _CACHED:
        cache.popitem(last=False)
