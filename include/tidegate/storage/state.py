"""Read state beside a sorted batch: the newest row of each entry that the batch needs, and no others.

State files are sorted by hash. They are read side by side in the order of hashes, along with the batch. A row
group without one of the batch's hashes, and without a timer that fires, is skipped by its statistics; in the
other row groups, values are read only if a row is needed. So a pass reads each file once, and memory has at
most a few row groups of each file at a time. Where a key has one entry, newer files are searched first: keys
that changed recently are in small young files, and the large old ones are not read for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.kernel.keys import GREATEST_HASH, LEAST_HASH, key_hash
from tidegate.storage.datafile import columns_with_values, data_errors, leaf_numbers, open_data, stored_schema
from tidegate.storage.evolution import NO_ALIASES, Aliases, aliases_in, batch_of, conformed
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import DUE_AT, HASH, KEY, LIVE, Hashes, entry_columns, newest_rows
from tidegate.storage.store import Store

Int64s = npt.NDArray[np.int64]

_NO_HASHES: Hashes = np.empty(0, np.int64)
_BEYOND = GREATEST_HASH + 1
_NEVER = 2**63 - 1
_GROUPS_AT_ONCE = 16
"""Row groups are small, so that few rows are read in vain. Several are read at once, since each read takes
longer than its rows.
"""


@dataclass(frozen=True)
class DueRows:
    """The rows whose timer fires.

    `fires` takes a table with `columns`, `due_at` among them, and returns a boolean for each row. It is asked
    only for row groups with a timer that is due at `latest` (epoch ms) or before; None: for all row groups.
    """

    columns: tuple[str, ...]
    latest: int | None
    fires: Callable[[pa.Table], pa.BooleanArray | pa.ChunkedArray]


class _RowGroups(NamedTuple):
    """The row groups of a file, with an element for each.

    Args:
        rows: the number of its rows.
        least, most: the bounds of its hashes.
        earliest: its earliest timer, epoch ms; without a timer, or if timers do not matter, beyond all times.
    """

    rows: Int64s
    least: Int64s
    most: Int64s
    earliest: Int64s


@dataclass(frozen=True)
class _Partial:
    """The rows of a row group of which only the first ones were asked for yet."""

    number: int
    rows: pa.Table

    def has(self, columns: Sequence[str]) -> bool:
        """Return whether it has all of these columns."""
        return {*columns} <= {*self.rows.column_names}


class Cursor:
    """The rows of a file from the hash `first_hash` on. Only `rows` moves the cursor; `fired` looks ahead.

    The file is not opened before somebody asks for hashes within its bounds. Each method that reads raises
    LakeDamaged, LakeUnavailable.
    """

    def __init__(self, store: Store, file: DataFile, due: DueRows | None, first_hash: int) -> None:
        assert file.least_hash is not None
        assert file.most_hash is not None
        self._store, self._file, self._due = store, file, due
        self._least, self._most = file.least_hash, file.most_hash
        self._open = ExitStack()
        self._parquet: pq.ParquetFile | None = None
        self._next_hash = first_hash
        self._partial: _Partial | None = None
        self._fired: dict[int, Hashes] = {}

    def close(self) -> None:
        """Close the file. The cursor cannot be used afterwards."""
        self._open.close()

    @property
    def next_bound(self) -> int:
        """The greatest hash of the row groups that `rows` reads next; a number beyond all hashes if there is
        none.

        For a file that is still ahead it is the file's least hash, so that the file is not opened before its
        turn. Raises LakeDamaged, LakeUnavailable.
        """
        if self._parquet is None and self._least > self._next_hash:
            return self._least
        numbers = self._numbers(GREATEST_HASH)[:_GROUPS_AT_ONCE]
        return int(self._groups.most[numbers[-1]]) if len(numbers) else _BEYOND

    def fired(self, up_to: int, most: int | None = None) -> Hashes:
        """Return the hashes up to `up_to` of rows whose timer fires, sorted, one for each row.

        If there are more than `most`, some may be missing, but none before the last one that is returned.
        Raises LakeDamaged, LakeUnavailable.
        """
        if self._due is None:
            return _NO_HASHES
        numbers, latest = self._numbers(up_to), self._due.latest
        if latest is not None and len(numbers):
            # No timer of the others is due by then, so their rows are not read.
            numbers = numbers[self._groups.earliest[numbers] <= latest]
        fired, total = [_NO_HASHES], 0
        for part in _parts(numbers):
            hashes = self._fired_in(part, self._due)
            start = np.searchsorted(hashes, self._next_hash)
            fired.append(hashes[start : np.searchsorted(hashes, up_to, side="right")])
            total += len(fired[-1])
            # Later row groups have greater hashes: the caller cuts before them, and they need not be read
            # yet.
            if most is not None and total > most:
                break
        return np.concatenate(fired)

    def rows(self, hashes: Hashes | None, up_to: int) -> Iterator[pa.Table]:
        """Yield the rows with these hashes (None: all rows) up to `up_to`; a later call begins after it.

        The rest of a row group that reaches beyond `up_to` stays in memory for later calls. Raises
        LakeDamaged, LakeUnavailable.
        """
        for part in _parts(self._numbers(up_to, hashes)):
            rows = self._rows_of(part, hashes, up_to)
            if rows.num_rows:
                yield rows
        self._next_hash = up_to + 1
        self._release()

    def _numbers(self, up_to: int, hashes: Hashes | None = None) -> Int64s:
        """Return the numbers of the row groups that can have a row that is still to be read, up to `up_to`
        and with one of `hashes`.
        """
        if not _any_between(hashes, max(self._least, self._next_hash), min(self._most, up_to)):
            return _NO_HASHES
        groups = self._groups
        numbers = np.arange(
            np.searchsorted(groups.most, self._next_hash), np.searchsorted(groups.least, up_to, side="right")
        )
        if hashes is None:
            return numbers
        least = np.maximum(groups.least[numbers], self._next_hash)
        most = np.minimum(groups.most[numbers], up_to)
        return numbers[np.searchsorted(hashes, least) < np.searchsorted(hashes, most, side="right")]

    @cached_property
    def _groups(self) -> _RowGroups:
        metadata = self._opened().metadata
        leaves = leaf_numbers(self._opened())
        hash_leaf, timer_leaf = leaves[HASH], leaves[DUE_AT] if self._due is not None else None
        bounds = []
        for number in range(metadata.num_row_groups):
            row_group = metadata.row_group(number)
            hashes = row_group.column(hash_leaf).statistics
            timers = row_group.column(timer_leaf).statistics if timer_leaf is not None else None
            # A row group without any timer has no minimum in its statistics.
            earliest = timers.min if timers is not None and timers.has_min_max else _NEVER
            bounds.append((row_group.num_rows, hashes.min, hashes.max, earliest))
        return _RowGroups(*np.array(bounds, np.int64).T)

    def _rows_of(self, part: Int64s, hashes: Hashes | None, up_to: int) -> pa.Table:
        if hashes is None:
            rows = self._all_rows(part, up_to)
            stored = rows[HASH].to_numpy()
            start = np.searchsorted(stored, self._next_hash)
            return rows.slice(start, np.searchsorted(stored, up_to, side="right") - start)
        # The hash column decides first; the other columns are read only of row groups with a row that is
        # needed.
        stored = self._read(part, [HASH])[HASH].to_numpy()
        first, last = np.searchsorted(hashes, self._next_hash), np.searchsorted(hashes, up_to, side="right")
        needed = _is_among(stored, hashes[first:last])
        sizes = self._groups.rows[part]
        has_rows = np.logical_or.reduceat(needed, np.cumsum(sizes) - sizes)
        is_read = np.repeat(has_rows, sizes)
        rows = self._all_rows(part[has_rows], up_to, stored[is_read])
        return rows.filter(pa.array(needed[is_read]))

    def _all_rows(self, part: Int64s, up_to: int, hashes: Hashes | None = None) -> pa.Table:
        """Return the columns of some row groups that have values. `hashes` are theirs, if they were read
        already.
        """
        if hashes is None:
            rows = self._read(part, self._columns)
        else:
            columns = [name for name in self._columns if name != HASH]
            rows = self._read(part, columns).append_column(HASH, pa.array(hashes))
        if len(part) and self._groups.most[part[-1]] > up_to:
            self._partial = _Partial(int(part[-1]), rows.slice(len(rows) - self._groups.rows[part[-1]]))
        return rows

    def _fired_in(self, part: Int64s, due: DueRows) -> Hashes:
        unread = np.array([number for number in part.tolist() if number not in self._fired], np.int64)
        if len(unread):
            timers = self._read(unread, [HASH, *due.columns])
            fires = np.asarray(due.fires(timers).to_numpy(zero_copy_only=False), bool)
            begins = np.cumsum(self._groups.rows[unread])[:-1]
            by_group = zip(
                *(unread.tolist(), np.split(timers[HASH].to_numpy(), begins), np.split(fires, begins)),
                strict=True,
            )
            self._fired |= {number: hashes[fire] for number, hashes, fire in by_group}
        return np.concatenate([self._fired[number] for number in part.tolist()])

    @cached_property
    def _columns(self) -> list[str]:
        """The columns that have a value in any row: a third of the time of reading is for the others."""
        return columns_with_values(self._opened())

    def _read(self, part: Int64s, columns: list[str]) -> pa.Table:
        numbers, tables = part.tolist(), []
        partial = self._partial
        if partial is not None and numbers[:1] == [partial.number] and partial.has(columns):
            numbers = numbers[1:]
            tables = [partial.rows.select(columns)]
        parquet = self._opened()
        if numbers or not tables:
            with data_errors(self._store, self._file):
                tables.append(parquet.read_row_groups(numbers, columns=columns, use_threads=False))
        return pa.concat_tables(tables)

    def _opened(self) -> pq.ParquetFile:
        if self._parquet is None:
            self._parquet = self._open.enter_context(open_data(self._store, self._file))
        return self._parquet

    def _release(self) -> None:
        """Let go of what no later call needs: memory has at most a few row groups of a file at a time."""
        if self._parquet is None:
            return
        most = self._groups.most
        self._fired = {
            number: hashes for number, hashes in self._fired.items() if most[number] >= self._next_hash
        }
        if self._partial is not None and most[self._partial.number] < self._next_hash:
            self._partial = None
        if self._most < self._next_hash:
            self._open.close()
            self._parquet = None  # its metadata takes megabytes


def _parts(numbers: Int64s) -> Iterator[Int64s]:
    """Yield the numbers of the row groups that are read at once."""
    for start in range(0, len(numbers), _GROUPS_AT_ONCE):
        yield numbers[start : start + _GROUPS_AT_ONCE]


def _any_between(hashes: Hashes | None, least: int, most: int) -> bool:
    """Return whether a hash of `hashes` (None: all hashes) is within the bounds."""
    if hashes is None:
        return least <= most
    place = int(np.searchsorted(hashes, least))
    return place < len(hashes) and bool(hashes[place] <= most)


def _is_among(values: Hashes, requested: Hashes) -> npt.NDArray[np.bool_]:
    """Return whether each value is one of `requested`; both are sorted, and `requested` is distinct."""
    # Few hashes are searched among many values: each begins a run of equal values, and ends it.
    begins, ends = np.searchsorted(values, requested), np.searchsorted(values, requested, side="right")
    among = np.zeros(len(values), np.bool_)
    has_values = begins < ends
    for begin, end in zip(begins[has_values].tolist(), ends[has_values].tolist(), strict=True):
        among[begin:end] = True
    return among


MOST_DUE_ROWS = 32_768
"""The number of rows with timers that fire which `next_bound` allows at once, unless one hash has more."""


class StateReader:
    """The state in some files, taken in the order of hashes. Use it as a context manager.

    Example::

        with StateReader(store, files, schema) as state:
            rows = state.take(hashes_of_the_batch)

    Args:
        schema: the requested columns and types; see `evolution.conformed`.
        due: the rows whose timer fires, which are taken beside those of the batch.
        by_place: an entry belongs to a topic-partition, as in a bounded stage.
        first_hash: smaller hashes are ignored; files that end before it are not opened.
        aliases: older names of columns, beside those that the files' manifests declare.
    """

    def __init__(
        self,
        store: Store,
        files: Sequence[DataFile],
        schema: pa.Schema,
        due: DueRows | None = None,
        by_place: bool = False,
        *,
        first_hash: int = LEAST_HASH,
        aliases: Aliases = NO_ALIASES,
    ) -> None:
        aliases_for = aliases_in(files, aliases)
        needed = [file for file in files if file.most_hash is not None and file.most_hash >= first_hash]
        needed.sort(key=batch_of, reverse=True)
        self._cursors = [Cursor(store, file, due, first_hash) for file in needed]
        self._aliases = [aliases_for(file) for file in needed]
        self._schema = schema
        self._due = due
        self._entry = entry_columns(by_place)

    def __enter__(self) -> StateReader:
        return self

    def __exit__(self, *_: object) -> None:
        for cursor in self._cursors:
            cursor.close()

    def next_bound(self, up_to: int = GREATEST_HASH) -> int:
        """Return the greatest hash, at most `up_to`, up to which not too many timers fire for one `take`.

        It is beyond all that was taken before. Raises LakeDamaged, LakeUnavailable.
        """
        if self._due is None:
            return up_to
        fired = []
        for cursor in self._cursors:
            hashes = cursor.fired(up_to, MOST_DUE_ROWS)
            if len(hashes) > MOST_DUE_ROWS:
                # One file alone has too many up to here, so the others need not look further.
                up_to = int(hashes[MOST_DUE_ROWS])
            fired.append(hashes)
        due_hashes = np.sort(np.concatenate([np.empty(0, np.int64), *fired]))
        due_hashes = due_hashes[due_hashes <= up_to]
        if len(due_hashes) <= MOST_DUE_ROWS:
            return up_to
        # If the first hash alone has too many, it must be taken whole all the same: an entry is never split.
        return max(int(due_hashes[MOST_DUE_ROWS]) - 1, int(due_hashes[0]))

    def take(
        self, hashes: Hashes, up_to: int = GREATEST_HASH, only_keys: pa.StringArray | None = None
    ) -> pa.Table:
        """Return the newest rows of entries up to the hash `up_to`, without those that were taken before.

        The rows have a hash of `hashes`, which is sorted and distinct, or the hash of a timer that fires;
        they are sorted by entry. Raises LakeDamaged, LakeUnavailable, SchemaChanged.

        `only_keys` has for each hash the one key that is needed, of which there is one entry; or null, if
        more is needed. When a file has a row of that key, older files are not searched for it.
        """
        fired = [cursor.fired(up_to) for cursor in self._cursors]
        # Without timers, the hashes of the batch are sorted and distinct already.
        requested = np.unique(np.concatenate([hashes, *fired])) if any(map(len, fired)) else hashes
        if only_keys is None:
            return self._newest(cursor.rows(requested, up_to) for cursor in self._cursors)
        # The entries of a timer that fires can have any key.
        numbers = np.full(len(requested), -1)
        numbers[np.searchsorted(requested, hashes)] = np.arange(len(hashes))
        numbers[np.searchsorted(requested, np.concatenate([_NO_HASHES, *fired]))] = -1
        search = _Search(requested, only_keys.take(pa.array(numbers, mask=numbers < 0)))
        return self._newest(search.rows_of(cursor, up_to) for cursor in self._cursors)

    def scan(self, live_only: bool = False) -> Iterator[pa.Table]:
        """Yield all that was not taken yet, in the order of hashes: the newest row of each entry.

        `live_only` leaves out entries that are not live. A table has about as many rows as a row group, or
        more if many rows have one hash. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
        """
        while (bound := min((cursor.next_bound for cursor in self._cursors), default=None)) is not None:
            if bound > GREATEST_HASH:
                return
            rows = self._newest(cursor.rows(None, bound) for cursor in self._cursors)
            rows = rows.filter(rows[LIVE]) if live_only else rows
            if rows.num_rows:
                yield rows

    def _newest(self, parts: Iterator[Iterator[pa.Table]]) -> pa.Table:
        # The rows of a file have the same columns, so they are conformed together.
        tables = [
            conformed(pa.concat_tables(rows), self._schema, aliases)
            for cursor_rows, aliases in zip(parts, self._aliases, strict=True)
            if (rows := [*cursor_rows])
        ]
        return newest_rows(pa.concat_tables([self._schema.empty_table(), *tables]), self._entry)


class _Search:
    """The hashes for which files are searched, the newest file first, until the row of its key is found.

    `keys` has for each hash its only key, or null: then each file is searched for it.
    """

    def __init__(self, hashes: Hashes, keys: pa.StringArray) -> None:
        self._hashes, self._keys = hashes, keys

    def rows_of(self, cursor: Cursor, up_to: int) -> Iterator[pa.Table]:
        """Yield a file's rows up to the hash `up_to`. Raises LakeDamaged, LakeUnavailable."""
        searched = np.ones(len(self._hashes), bool)
        for rows in cursor.rows(self._hashes, up_to):
            places = np.searchsorted(self._hashes, rows[HASH].to_numpy())
            is_found = pc.fill_null(pc.equal(rows[KEY], self._keys.take(pa.array(places))), False)
            searched[places[is_found.to_numpy()]] = False
            yield rows
        self._hashes, self._keys = self._hashes[searched], self._keys.filter(pa.array(searched))


def live_rows(
    store: Store,
    files: Sequence[DataFile],
    by_place: bool = False,
    key: str | None = None,
    aliases: Aliases = NO_ALIASES,
) -> pa.Table:
    """Return one row per live entry, by key and window, with the columns that interest people.

    `key` limits the result to one key. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    if key is None:
        rows = newest_of_all(store, files, by_place, aliases)
    else:
        rows = read_key(store, files, key, by_place, aliases)
    live = rows.filter(rows[LIVE]).drop_columns([HASH, LIVE])
    order = [name for name in entry_columns(by_place) if name != HASH]
    return live.sort_by([(name, "ascending") for name in order])


def newest_of_all(
    store: Store, files: Sequence[DataFile], by_place: bool = False, aliases: Aliases = NO_ALIASES
) -> pa.Table:
    """Return the newest row of each entry, live or not. Raises LakeDamaged, LakeUnavailable,
    SchemaChanged.
    """
    schema = stored_schema(store, files, aliases)
    with StateReader(store, files, schema, by_place=by_place, aliases=aliases) as state:
        return pa.concat_tables([schema.empty_table(), *state.scan()])


def read_key(
    store: Store,
    files: Sequence[DataFile],
    key: str,
    by_place: bool = False,
    aliases: Aliases = NO_ALIASES,
) -> pa.Table:
    """Return the newest row of each entry of a key, by window.

    One row group is read of each file that may have the key. A bounded stage is read whole, since its rows
    are sorted by the hash of their topic-partition. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
    """
    if by_place:
        rows = newest_of_all(store, files, by_place, aliases)
    else:
        hash_ = key_hash(key)
        schema = stored_schema(store, files, aliases)
        with StateReader(store, files, schema, first_hash=hash_, aliases=aliases) as state:
            rows = state.take(np.array([hash_], np.int64), hash_)
    # Two keys can have the same hash.
    return rows.filter(pc.equal(rows[KEY], key))
