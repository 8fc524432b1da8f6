"""The tables of lookups in a case file, as they are at each of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tidegate.errors import SettingsInvalid
from tidegate.kernel.rows import with_column
from tidegate.model.lookup import Lookup
from tidegate.spark.shuffle import value_column
from tidegate.yaml.cases import LookupRows

Rows = Sequence[Mapping[str, Any]]


class CaseTables:
    """Rows of tables, and their changes by the number of the step.

    Example: `CaseTables(spark, {"stores/current": rows}, {}).of_lookup(lookup, 0)`
    """

    def __init__(
        self, spark: SparkSession, tables: Mapping[str, Rows], changes: Mapping[int, LookupRows]
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._changes = changes

    @property
    def spans(self) -> Iterator[tuple[int, int]]:
        """The steps between which no table changes: the first step of each span, and the one after its
        last.
        """
        return pairwise([-1, *self._changes, 2**62])

    def changed_at(self, step: int) -> tuple[str, ...]:
        """Return the tables that change at a step."""
        change = self._changes.get(step)
        return () if change is None else (change.table,)

    def version(self, table: str, step: int) -> int:
        """Return the step at which a table got the rows that it has after a step; -1 if it never changed."""
        return max(
            (at for at, change in self._changes.items() if change.table == table and at <= step), default=-1
        )

    def of_lookup(self, lookup: Lookup, step: int) -> DataFrame:
        """Return the rows of a lookup's table after a step. Raises SettingsInvalid if the case has none."""
        return self.frame(lookup.table, (*lookup.on, *lookup.columns), step)

    def frame(self, table: str, names: Sequence[str], step: int) -> DataFrame:
        """Return columns of a table after a step. Raises SettingsInvalid if the case has no rows of it."""
        rows = self._rows(table, step)
        if rows is None:
            raise SettingsInvalid(
                f"There are no rows for the lookup table {table}",
                f"Write them into the case: `tables: {{{table}: [{{…}}]}}`.",
            )
        columns = {name: [row.get(name) for row in rows] for name in names}
        # rows of other steps have the types of columns that are null here
        types = pa.table({name: [row.get(name) for row in self._all(table)] for name in columns}).schema
        return F.broadcast(self._spark.createDataFrame(pa.table(columns, types)))

    def _rows(self, table: str, step: int) -> Rows | None:
        changes = [
            change.rows for at, change in self._changes.items() if change.table == table and at <= step
        ]
        return changes[-1] if changes else self._tables.get(table)

    def _all(self, table: str) -> Iterator[Mapping[str, Any]]:
        yield from self._tables.get(table, ())
        for change in self._changes.values():
            yield from change.rows if change.table == table else ()


def moved(rows: pa.Table, by: int) -> pa.Table:
    """Return rows of records that come again, and the whole records in them, with their turns increased."""
    value = rows[value_column(0)].combine_chunks()
    frame = _replaced(pc.struct_field(value, "frame"), "__turn", by)
    names = [field.name for field in value.type]
    parts = [frame if name == "frame" else pc.struct_field(value, name) for name in names]
    changed = pa.StructArray.from_arrays(parts, names, mask=value.is_null())
    rows = with_column(rows, "turn", pc.add(rows["turn"], pa.scalar(by, pa.int64())))
    return with_column(rows, value_column(0), changed)


def _replaced(struct: pa.StructArray, name: str, by: int) -> pa.StructArray:
    parts = [pc.struct_field(struct, field.name) for field in struct.type]
    place = struct.type.get_field_index(name)
    parts[place] = pc.add(parts[place], pa.scalar(by, pa.int64()))
    return pa.StructArray.from_arrays(parts, fields=list(struct.type), mask=struct.is_null())
