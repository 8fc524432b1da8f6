"""Rows of the tables that a pipeline looks up or expects keys of, which change between batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from tidegate.model.columns import parse_type
from tidegate.model.lookup import KEY
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.cases import LookupRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"rate": (1, 2, 20), "region": ("north", "south")}
"""What a lookup adds to records, and its values."""
ALIKE = ("string", "int", "bigint")
"""The types of columns by which records are joined."""
Rows = tuple[Mapping[str, Any], ...]
Columns = Mapping[str, "str | Sequence[Any]"]
"""Column of a table -> the column of records that it equals, or the values that it may have."""
_MOST = 4


@dataclass(frozen=True)
class PlayedTable:
    """A table as the plan of a batch pins it. `every` are rows of all versions, which have types alike."""

    rows: Rows
    every: Rows

    parts: ClassVar[int] = 1

    def open(self, spark: SparkSession) -> DataFrame:
        """Return its rows."""
        names = [*self.every[0]]
        types = pa.table({name: [row[name] for row in self.every] for name in names}).schema
        return spark.createDataFrame(pa.table({n: [row[n] for row in self.rows] for n in names}, types))


class TableDrawing:
    """The tables of one run. `value(column)` draws a value that a column of records may have, too."""

    def __init__(self, dice: random.Random, pipeline: Pipeline, value: Callable[[str], Any]) -> None:
        self.dice = dice
        self._value = value
        self._columns: dict[str, Columns] = {**_looked_up(pipeline), **_expected(pipeline)}
        self._unique = {lookup.table: lookup.on for lookup in pipeline.lookup}
        self.first = {table: self._version(table, least=1) for table in self._columns}

    def change(self) -> LookupRows | None:
        """Draw the next version of a table; None if there is no table."""
        if not self._columns:
            return None
        table = self.dice.choice([*self._columns])
        return LookupRows(table, self._version(table, least=0))

    def _version(self, table: str, least: int) -> Rows:
        rows = [self._row(table) for _ in range(self.dice.randint(least, _MOST))]
        if least:  # it says what types the columns have
            rows[0] = {name: self._typed(values) for name, values in self._columns[table].items()}
        unique = self._unique.get(table)
        if unique is None:
            return tuple(rows)
        return tuple({tuple(row[name] for name in unique): row for row in reversed(rows)}.values())

    def _row(self, table: str) -> dict[str, Any]:
        return {
            name: None if self.dice.random() < 0.1 else self._typed(values)
            for name, values in self._columns[table].items()
        }

    def _typed(self, values: str | Sequence[Any]) -> Any:
        return self._value(values) if isinstance(values, str) else self.dice.choice(values)


def are_drawn(pipeline: Pipeline) -> bool:
    """Return whether rows can be drawn for the tables of a pipeline: each has one reader, and is joined by
    columns of few types.
    """
    tables = [table.table for table in pipeline.tables]
    types = {
        column.name: type_.text
        for source in pipeline.sources.values()
        for column in source.columns
        if (type_ := parse_type(column.type)) is not None
    }
    return len({*tables}) == len(tables) and all(types.get(name) in ALIKE for name in keys_of(pipeline))


def keys_of(pipeline: Pipeline) -> Iterator[str]:
    """Yield the columns of records that have a counterpart in a table."""
    for columns in (*_looked_up(pipeline).values(), *_expected(pipeline).values()):
        yield from (values for values in columns.values() if isinstance(values, str) and values != KEY)


def _looked_up(pipeline: Pipeline) -> dict[str, Columns]:
    """Return the columns of each table that is looked up."""
    return {
        lookup.table: {
            **{name: COLUMNS[name] for name in lookup.columns},
            **{name: name for name in lookup.on},
        }
        for lookup in pipeline.lookup
    }


def _expected(pipeline: Pipeline) -> dict[str, Columns]:
    """Return the columns of each table whose keys are expected."""
    return {
        stage.expected.table: dict(zip(stage.expected.key, pipeline.key_of(stage) or (KEY,), strict=True))
        for stage in pipeline.stages
        if stage.expected is not None
    }
