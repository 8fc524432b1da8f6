"""Audited rows as pandas DataFrames, in parts whose columns have the types that the whole table would
have.

In pandas, a column of integers with a null is a column of doubles, and a boolean column with a null is a
column of objects. So the nulls of all parts must be counted before the first part is made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.quality.audited import AuditedRows

PART_ROWS = 100_000
"""The number of rows in memory at a time, approximately."""


class Parts:
    """The rows of an audit, in parts of about `most` rows.

    Example::

        for frame in Parts(rows).split(["key", "quantity"]):
            ...  # a pandas DataFrame of about 100,000 rows
    """

    def __init__(self, rows: AuditedRows, most: int = PART_ROWS) -> None:
        self.rows = rows
        self.most = most
        self.number = rows.most_rows
        self._nullable: dict[str, bool] = {}

    def empty(self) -> pd.DataFrame:
        """Return a DataFrame without rows whose columns have the types that the parts have."""
        # If all rows are one part, that part has its own types anyway, and no pass is needed.
        if self.number > self.most:
            self._find_nulls(self.rows.schema.names)
        return self._frame(self.rows.schema.empty_table())

    def existing(self, columns: Sequence[str] | None) -> list[str]:
        """Return the columns that exist among `columns`; None returns all columns."""
        names: list[str] = self.rows.schema.names
        return names if columns is None else [name for name in columns if name in names]

    def whole(self, columns: Sequence[str] | None = None, decimals_as_floats: bool = False) -> pd.DataFrame:
        """Return all rows in one DataFrame.

        Args:
            columns: Read only these columns; None reads all.
            decimals_as_floats: Convert decimals to the doubles that Great Expectations computes with.
        """
        if self.number <= self.most and not decimals_as_floats:
            return self._frame(self.rows.table(self.existing(columns)))
        names = self.existing(columns)
        frame: pd.DataFrame = pd.DataFrame({name: self._column(name, decimals_as_floats) for name in names})
        return frame

    def split(self, columns: Sequence[str] | None) -> Iterator[pd.DataFrame]:
        """Yield all rows, in order, in parts. Args: see `whole`."""
        names = self.existing(columns)
        self._find_nulls(names)
        for table in self._tables(names):
            yield self._frame(table)

    def by_value(self, columns: Sequence[str], value_columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield all rows so that rows with equal values in `value_columns` are in one part.

        The rows are written to temporary files in between. If a few values have most of the rows, a part has
        many more rows than it should have. Such a part contains only `value_columns`, to save memory.

        Args:
            columns: The columns of the parts.
            value_columns: The columns whose values decide the part.

        Raises TypeError if a value cannot be hashed, such as a list.
        """
        self._find_nulls(columns)
        parts = max(1, -(-self.number // self.most))
        schema = pa.schema([self.rows.schema.field(name) for name in columns])
        with tempfile.TemporaryDirectory(prefix="tidegate-quality-") as folder, ExitStack() as open_files:
            paths = [Path(folder, f"{part}.arrow") for part in range(parts)]
            writers = [open_files.enter_context(pa.ipc.new_file(str(path), schema)) for path in paths]
            for table in self._tables(columns):
                # Equal values have equal hashes, so they meet in one part, whichever row group they are in.
                places = pa.array(_hashes(self._frame(table.select(list(value_columns)))) % parts)
                for part, writer in enumerate(writers):
                    rows = table.filter(pc.equal(places, part))
                    writer.write_table(rows)
            # an Arrow file can be read only after its footer is written
            open_files.close()
            for path in paths:
                with pa.OSFile(str(path)) as file:
                    table = pa.ipc.open_file(file).read_all()
                is_large = table.num_rows > 2 * self.most
                yield self._frame(table.select(list(value_columns)) if is_large else table)

    def at(self, positions: Sequence[int], columns: Sequence[str]) -> list[dict[str, object]]:
        """Return some columns of the rows at these positions, counted from 0 over all files."""
        rows: dict[int, dict[str, object]] = {}
        first = 0
        for table in self.rows.parts(columns):
            in_table = [position for position in positions if first <= position < first + table.num_rows]
            for position in in_table:
                (rows[position],) = table.slice(position - first, 1).to_pylist()
            first += table.num_rows
        return [rows[position] for position in positions if position in rows]

    def _tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield row groups joined until they have enough rows."""
        gathered: list[pa.Table] = []
        for table in self.rows.parts(columns):
            gathered.append(table)
            if sum(part.num_rows for part in gathered) >= self.most:
                yield pa.concat_tables(gathered)
                gathered = []
        if gathered:
            yield pa.concat_tables(gathered)

    def _column(self, name: str, decimals_as_floats: bool) -> pd.Series[Any]:
        self._find_nulls([name])
        as_floats = decimals_as_floats and pa.types.is_decimal(self.rows.schema.field(name).type)
        parts = []
        for table in self._tables([name]):
            part = self._frame(table)[name]
            parts.append(part.astype(np.float64) if as_floats else part)
        return pd.concat(parts, ignore_index=True) if parts else self.empty()[name]

    def _find_nulls(self, columns: Sequence[str]) -> None:
        names = [
            name
            for name in columns
            if name not in self._nullable and _depends_on_nulls(self.rows.schema.field(name).type)
        ]
        if not names:
            return
        nulls = dict.fromkeys(names, 0)
        for table in self.rows.parts(names):
            for name in names:
                nulls[name] += table[name].null_count
        self._nullable |= {name: number > 0 for name, number in nulls.items()}

    def _frame(self, table: pa.Table) -> pd.DataFrame:
        frame: pd.DataFrame = table.to_pandas()
        for name in table.column_names:
            # The part has no null, but the whole has: pandas would give this part another type.
            if self._nullable.get(name) and not table[name].null_count:
                is_boolean = pa.types.is_boolean(table.schema.field(name).type)
                frame[name] = frame[name].astype(object if is_boolean else np.float64)
        return frame


def _depends_on_nulls(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_))


def _hashes(frame: pd.DataFrame) -> npt.NDArray[np.uint64]:
    """Return a hash of each row; equal rows have equal hashes."""
    for name in frame.columns:
        if pd.api.types.is_float_dtype(frame[name]):
            frame[name] = (
                frame[name] + 0.0
            )  # makes -0.0 to 0.0: pandas compares them as equal, but hashes the bits
    hashes: npt.NDArray[np.uint64] = pd.util.hash_pandas_object(
        frame, index=False, categorize=False
    ).to_numpy()
    return hashes
