"""Count which declared columns have values in a batch, and which fields of its records are not declared.

Both reveal a typo in `columns`, or a field that records do not have. Values are counted in all records.
Undeclared fields are counted in a sample, the first records of each block, and in JSON only: a full count
would decode each record twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats import RecordLayout
from tidegate.spark.reports import Report, SliceReport

SAMPLED_PER_BLOCK = 100
"""The records that are sampled of a block of some thousands, which takes 0.1 ms."""
MOST_FIELDS = 20
"""The number of undeclared fields that are reported, the most frequent ones."""
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class FieldCounter:
    """Counts the fields of one slice."""

    def __init__(self, layout: RecordLayout) -> None:
        self._columns = layout.columns.names
        self._is_sampled = layout.format == "json"
        # Records from before a column was renamed have its older name, which is no typo.
        older = (name for names in layout.aliases.values() for name in names)
        self._declared = {*self._columns, *older}
        self.usable = self.sampled = 0
        self.filled, self._undeclared = Counter[str](), Counter[str]()

    def add_values(self, values: Sequence[bytes | None]) -> None:
        """Count the fields of some records of a block."""
        if not self._is_sampled:
            return
        for value in islice((value for value in values if value is not None), SAMPLED_PER_BLOCK):
            try:
                fields = _OBJECT.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # it is quarantined with its reason
            self.sampled += 1
            self._undeclared.update(fields.keys() - self._declared)

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Count the values of the declared columns."""
        usable = pc.and_(rows.column("__reason").is_null(), pc.invert(rows.column("__tombstone")))
        self.usable += pc.sum(usable).as_py() or 0
        for name in self._columns:
            column = rows.column(name)
            self.filled[name] += len(column) - column.null_count

    @property
    def undeclared(self) -> dict[str, int]:
        """Field -> sampled records that have it, the most frequent ones."""
        return dict(self._undeclared.most_common(MOST_FIELDS))


def source_counts(reports: Iterable[Report]) -> dict[str, Counter[str]]:
    """Return the counts of all slices together, as the two stages that `ledger.report` reads.

    Empty if no record was usable.
    """
    columns, fields = Counter[str](), Counter[str]()
    usable = 0
    for report in reports:
        if isinstance(report, SliceReport):
            usable += report.usable
            for name, number in report.filled.items():
                columns[name] += number
            fields.update(report.undeclared)
            fields[""] += report.sampled
    return {"source:columns": columns, "source:fields": fields} if usable else {}
