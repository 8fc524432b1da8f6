"""A stage that retracts, in the naive way: it takes nothing back, but computes the value of a group anew from
all rows that the table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.kernel.model.grammar import Settings
from tests.kernel.model.records import Emission, Partition, Record, Value, Window
from tests.kernel.model.values import Folded, fold, selected

Row = tuple[str, Window | None]
"""Key and window of a row of the table: those of an emission of the stage before."""


class Groups:
    """The table that a stage emits, and its groups by a column; without a column, by the rows' own keys."""

    def __init__(self, settings: Settings, column: str | None) -> None:
        self._settings = settings
        self._column = column
        self._rows: dict[Row, Emission] = {}
        self._newest: dict[str, int] = {}

    def records(self, emissions: Sequence[Emission], home: Partition) -> Iterator[list[Record]]:
        """Yield, for each emission, the values of the groups that it changes, each as a record of the group;
        null if the group has no row any more.
        """
        for offset, emission in enumerate(emissions, start=1):
            yield [
                Record(group, self._value(group), *home, offset, self._newest[group], group=number)
                for number, group in enumerate(self._changed_groups(emission))
            ]
            # Quote: A group that loses its last row is deleted. If a row comes again, the group is new.
            self._newest = {group: at for group, at in self._newest.items() if self._rows_of(group)}

    def _changed_groups(self, emission: Emission) -> list[str]:
        """Change a row, and return the group that it leaves and the one that it comes to."""
        row = (emission.key, emission.window)
        before = self._group(self._rows.pop(row, None))
        if emission.value is not None:
            self._rows[row] = emission
        groups = dict.fromkeys(group for group in (before, self._group(emission)) if group is not None)
        for group in groups:
            # Quote: An emission's timestamp is the largest event timestamp that is folded into its value
            self._newest[group] = max(emission.timestamp, self._newest.get(group, emission.timestamp))
        return [*groups]

    def _group(self, emission: Emission | None) -> str | None:
        """Quote: A row whose key in the new stage is null belongs to no group."""
        if emission is None or emission.value is None:
            return None
        value = emission.key if self._column is None else emission.value.get(self._column)
        return None if value is None else str(value)

    def _value(self, group: str) -> Value:
        rows = self._rows_of(group)
        folded = [Folded(selected(self._settings, row.value), row.timestamp) for row in rows]
        return fold(self._settings, folded) if rows else None

    def _rows_of(self, group: str) -> list[Emission]:
        return [row for row in self._rows.values() if self._group(row) == group]
