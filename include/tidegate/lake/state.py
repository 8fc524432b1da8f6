"""Reading state beside a sorted batch: the newest row of each entry that the batch needs, and no others.

State files are sorted by the hash of the key. They are read side by side in the order of hashes, as the
batch goes by: a row group without one of the batch's hashes, and without a timer that fires, is skipped by
its statistics; of the others the values are only read where a row is needed. So a pass reads each file once,
and holds a few row groups at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.lake.manifest import DataFile, damaged
from tidegate.lake.store import Store, store_errors
from tidegate.lake.writer import HASH

ENTRY = ("hash", "key", "window_start", "window_end")
"""What tells entries apart. In a bounded stage also PLACE: a key has an entry in each topic-partition."""
PLACE = ("topic", "partition")
AGE = "updated_seq"
"""Of an entry's rows the one with the largest counts."""
LEAST_HASH, GREATEST_HASH = -(2**63), 2**63 - 1

Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DueRows:
    """Which rows have a timer that fires. `fires` says so of a table with `columns`, `due_at` among them; it
    is asked where a row group has a timer that is due at `latest` (epoch ms) or before.
    """

    columns: tuple[str, ...]
    latest: int
    fires: Callable[[pa.Table], pa.BooleanArray | pa.ChunkedArray]


class StateReader:
    """The state that some files hold, taken in the order of hashes. Use it as a context manager.

    `schema`: the columns that are wanted; a struct's fields that a file does not have yet are null.
    """

    def __init__(
        self,
        store: Store,
        files: Sequence[DataFile],
        schema: pa.Schema,
        due: DueRows | None = None,
        by_place: bool = False,
    ) -> None:
        self._cursors = [_Cursor(store, file, schema, due) for file in files]
        self._schema = schema
        self._entry = ENTRY + PLACE if by_place else ENTRY

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *_: object) -> None:
        for cursor in self._cursors:
            cursor.close()

    def take(self, hashes: Hashes, up_to: int = GREATEST_HASH) -> pa.Table:
        """The newest rows of entries up to the hash `up_to`, but not of what was gone through before.

        They are those whose hash is one of `hashes`, which are sorted and distinct, or that of a timer that
        fires; sorted by entry. Raises LakeDamaged, LakeUnavailable.
        """
        due = [cursor.scan(up_to) for cursor in self._cursors]
        wanted = np.unique(np.concatenate([hashes, *due])) if any(map(len, due)) else hashes
        parts = [part for cursor in self._cursors for part in cursor.rows(wanted)]
        return newest_rows(pa.concat_tables([self._schema.empty_table(), *parts]), self._entry)


def newest_rows(rows: pa.Table, entry: Sequence[str] = ENTRY) -> pa.Table:
    """The newest row of each entry, sorted by entry."""
    if rows.num_rows < 2:
        return rows
    by = [(name, "ascending") for name in (*entry, AGE)]
    rows = rows.take(pc.sort_indices(rows, sort_keys=by)).combine_chunks()
    same = np.ones(rows.num_rows - 1, bool)
    for name in entry:
        column = rows[name].combine_chunks()
        here, following = column.slice(0, rows.num_rows - 1), column.slice(1)
        equal = pc.fill_null(pc.equal(here, following), False)
        both_null = pc.and_(here.is_null(), following.is_null())
        same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.append(~same, True)))


def is_among(values: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """Whether each value is one of `wanted`, which are sorted."""
    if not len(wanted):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: npt.NDArray[np.bool_] = wanted[places] == values
    return found


@dataclass
class _Group:
    """A row group that is being gone through: the bounds of its hashes, and what was read of it so far."""

    number: int
    least: int
    most: int
    hashes: Hashes | None = None
    rows: pa.Table | None = None


class _Cursor:
    """One file, gone through once by `scan` and `rows` in turn."""

    def __init__(self, store: Store, file: DataFile, schema: pa.Schema, due: DueRows | None) -> None:
        self._store, self._file, self._schema, self._due = store, file, schema, due
        self._open = ExitStack()
        self._parquet: pq.ParquetFile | None = None
        self._next = 0
        self._groups: list[_Group] = []
        self._after, self._up_to = LEAST_HASH - 1, LEAST_HASH - 1
        """What is being gone through: hashes after the one, up to and with the other."""

    def close(self) -> None:
        self._open.close()

    def scan(self, up_to: int) -> Hashes:
        """Go on to the hash `up_to`; gives the hashes whose timers fire. `rows` is asked next."""
        self._after, self._up_to = self._up_to, up_to
        self._groups = [group for group in self._groups if group.most > self._after]
        if self._file.least_hash is not None and self._file.least_hash <= up_to:
            self._groups += self._groups_up_to(up_to)
        return np.concatenate([np.empty(0, np.int64), *map(self._fired, self._groups)])

    def rows(self, wanted: Hashes) -> Iterator[pa.Table]:
        """The rows of these hashes among those that were gone through."""
        for group in self._groups:
            least, most = max(group.least, self._after + 1), min(group.most, self._up_to)
            place = int(np.searchsorted(wanted, least))
            if place == len(wanted) or wanted[place] > most:
                continue
            start, stop = self._span(group)
            mask = is_among(self._hashes(group)[start:stop], wanted)
            if mask.any():
                if group.rows is None:
                    group.rows = self._conformed(self._read(group.number, None))
                yield group.rows.slice(start, stop - start).filter(pa.array(mask))

    def _groups_up_to(self, up_to: int) -> Iterator[_Group]:
        row_groups = self._opened().num_row_groups
        while self._next < row_groups:
            bounds = self._bounds(self._next, HASH)
            assert bounds is not None, "each row of state has a hash"
            if bounds[0] > up_to:
                return
            yield _Group(self._next, *bounds)
            self._next += 1

    def _fired(self, group: _Group) -> Hashes:
        """The hashes of the group's timers that fire, as far as it is gone through."""
        earliest = self._bounds(group.number, "due_at") if self._due is not None else None
        if self._due is None or earliest is None or earliest[0] > self._due.latest:
            return np.empty(0, np.int64)
        start, stop = self._span(group)
        timers = self._read(group.number, list(self._due.columns)).slice(start, stop - start)
        due: Hashes = self._hashes(group)[start:stop][self._due.fires(timers).to_numpy()]
        return due

    def _hashes(self, group: _Group) -> Hashes:
        if group.hashes is None:
            group.hashes = self._read(group.number, [HASH])[HASH].to_numpy()
        return group.hashes

    def _span(self, group: _Group) -> tuple[int, int]:
        """The first row of the group that is being gone through, and the one after the last."""
        start, stop = np.searchsorted(self._hashes(group), [self._after, self._up_to], side="right")
        return int(start), int(stop)

    def _bounds(self, number: int, column: str) -> tuple[int, int] | None:
        """The least and greatest value of a column in a row group; None where all are null."""
        parquet = self._opened()
        leaf = self._leaves[column]
        statistics = parquet.metadata.row_group(number).column(leaf).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        return statistics.min, statistics.max

    @cached_property
    def _leaves(self) -> dict[str, int]:
        """The plain columns' numbers among Parquet's, where a struct has several."""
        schema = self._opened().metadata.schema
        return {schema.column(leaf).path: leaf for leaf in range(len(schema))}

    def _read(self, number: int, columns: list[str] | None) -> pa.Table:
        with store_errors(self._file.path):
            return self._opened().read_row_group(number, columns=columns, use_threads=False)

    def _opened(self) -> pq.ParquetFile:
        if self._parquet is None:
            with store_errors(self._file.path):
                file = self._open.enter_context(self._store.open(self._file.path))
                if file.size() != self._file.bytes:
                    raise damaged(self._file.path, f"it has {file.size()} bytes of {self._file.bytes}")
                self._parquet = pq.ParquetFile(file)
        return self._parquet

    def _conformed(self, rows: pa.Table) -> pa.Table:
        return pa.table([_as_type(rows, field) for field in self._schema], self._schema)


def _as_type(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    """A stored column in today's type: what it did not have then is null."""
    if field.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
    stored = rows[field.name]
    if stored.type == field.type or not pa.types.is_struct(field.type):
        return stored.cast(field.type)
    column = stored.combine_chunks()
    parts = [
        pc.struct_field(column, part.name).cast(part.type)
        if column.type.get_field_index(part.name) >= 0
        else pa.nulls(len(column), part.type)
        for part in field.type
    ]
    struct = pa.StructArray.from_arrays(parts, fields=list(field.type), mask=column.is_null())
    return pa.chunked_array([struct])
