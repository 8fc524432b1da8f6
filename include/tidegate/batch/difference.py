"""Two outputs, entry by entry: what a consumer of the one would have to hear to hold the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.batch.outputs import ENTRY, TEXT, live

_OLD, _NEW = "old", "new"


@dataclass(frozen=True)
class Difference:
    """Entries by what becomes of them; each table has the columns of ENTRY, and `old` and `new`, the values
    as JSON text. `same` is only counted.
    """

    added: pa.Table
    changed: pa.Table
    removed: pa.Table
    same: int

    @property
    def total(self) -> int:
        """The number of entries that differ."""
        return sum(table.num_rows for table in (self.added, self.changed, self.removed))


def difference(old: pa.Table, new: pa.Table) -> Difference:
    """`old`, `new`: the newest emission of each entry, as `outputs.consumed` gives it."""
    both = _values(old, _OLD).join(_values(new, _NEW), keys=list(ENTRY), join_type="full outer")
    both = both.sort_by([(name, "ascending") for name in ENTRY])
    before, after = pc.is_valid(both[_OLD]), pc.is_valid(both[_NEW])
    differs = pc.fill_null(pc.not_equal(both[_OLD], both[_NEW]), True)
    changed = both.filter(pc.and_(pc.and_(before, after), differs))
    added, removed = both.filter(pc.invert(before)), both.filter(pc.invert(after))
    return Difference(added, changed, removed, both.num_rows - sum(map(len, (changed, added, removed))))


def _values(rows: pa.Table, name: str) -> pa.Table:
    """Return the live entries, each with its value in the column `name`."""
    if not rows.num_columns:
        columns = dict.fromkeys(ENTRY[1:], pa.int64())
        return pa.schema([(ENTRY[0], pa.string()), *columns.items(), (name, pa.string())]).empty_table()
    rows = live(rows).select([*ENTRY, TEXT])
    return rows.rename_columns([*ENTRY, name])
