"""Read state beside a sorted batch: the newest row of each entry that the batch needs, and no others.

State files are sorted by hash. They are read side by side in the order of hashes, along with the batch. A row
group without one of the batch's hashes, and without a timer that fires, is skipped by its statistics; in the
other row groups, values are read only if a row is needed. So a pass reads each file once, and memory has at
most a row group of each file at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.kernel.keys import GREATEST_HASH, LEAST_HASH, key_hash
from tidegate.storage.datafile import data_errors, open_data, stored_schema
from tidegate.storage.evolution import NO_ALIASES, Aliases, aliases_in, conformed
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import DUE_AT, HASH, KEY, LIVE, Hashes, entry_columns, newest_rows
from tidegate.storage.store import Store

_NO_HASHES: Hashes = np.empty(0, np.int64)
_BEYOND = GREATEST_HASH + 1


@dataclass(frozen=True)
class DueRows:
    """The rows whose timer fires.

    `fires` takes a table with `columns`, `due_at` among them, and returns a boolean for each row. It is asked
    only for row groups with a timer that is due at `latest` (epoch ms) or before; None: for all row groups.
    """

    columns: tuple[str, ...]
    latest: int | None
    fires: Callable[[pa.Table], pa.BooleanArray | pa.ChunkedArray]


@dataclass
class _RowGroup:
    """A row group: the bounds of its hashes, its earliest timer (None: it has none), and what was
    read of it.
    """

    number: int
    least: int
    most: int
    earliest: int | None
    cached: dict[str, Any] = field(default_factory=dict)


class Cursor:
    """The rows of a file from the hash `first_hash` on. Only `rows` moves the cursor; `fired` looks ahead.

    The file is not opened before somebody asks for hashes within its bounds. Each method that reads raises
    LakeDamaged, LakeUnavailable.
    """

    def __init__(self, store: Store, file: DataFile, due: DueRows | None, first_hash: int) -> None:
        assert file.least_hash is not None
        self._store, self._file, self._due = store, file, due
        self._open = ExitStack()
        self._parquet: pq.ParquetFile | None = None
        self._row_groups: deque[_RowGroup] | None = None
        self._next_hash = first_hash

    def close(self) -> None:
        """Close the file. The cursor cannot be used afterwards."""
        self._open.close()

    @property
    def next_bound(self) -> int:
        """The greatest hash of the next row group; a number beyond all hashes if there is none.

        For a file that is still ahead it is the file's least hash, so that the file is not opened before its
        turn. Raises LakeDamaged, LakeUnavailable.
        """
        assert self._file.least_hash is not None
        if self._row_groups is None and self._file.least_hash > self._next_hash:
            return self._file.least_hash
        groups = self._groups_up_to(GREATEST_HASH)
        return next((group.most for group in groups), _BEYOND)

    def fired(self, up_to: int, most: int | None = None) -> Hashes:
        """Return the hashes up to `up_to` of rows whose timer fires, sorted, one for each row.

        If there are more than `most`, some may be missing, but none before the last one that is returned.
        Raises LakeDamaged, LakeUnavailable.
        """
        if self._due is None:
            return _NO_HASHES
        parts, number = [_NO_HASHES], 0
        for group in self._groups_up_to(up_to):
            hashes = self._fired_in(group, self._due)
            start = np.searchsorted(hashes, self._next_hash)
            parts.append(hashes[start : np.searchsorted(hashes, up_to, side="right")])
            number += len(parts[-1])
            # Later row groups have greater hashes: the caller cuts before them, and they need not be read
            # yet.
            if most is not None and number > most:
                break
        return np.concatenate(parts)

    def rows(self, hashes: Hashes | None, up_to: int) -> Iterator[pa.Table]:
        """Yield the rows with these hashes (None: all rows) up to `up_to`; a later call begins after it.

        The rest of a row group that reaches beyond `up_to` stays in memory for later calls. Raises
        LakeDamaged, LakeUnavailable.
        """
        for group in list(self._groups_up_to(up_to)) if hashes is None or len(hashes) else ():
            rows = self._rows_of(group, hashes, up_to)
            # Read to its end: memory has at most one row group of a file at a time.
            if group.most <= up_to:
                group.cached.clear()
            if rows is not None:
                yield rows
        self._next_hash = up_to + 1
        self._close_at_end()

    def _rows_of(self, group: _RowGroup, hashes: Hashes | None, up_to: int) -> pa.Table | None:
        least, most = max(group.least, self._next_hash), min(group.most, up_to)
        if hashes is not None and not _any_between(hashes, least, most):
            return None
        stored = self._hashes(group)
        start, stop = np.searchsorted(stored, least), np.searchsorted(stored, most, side="right")
        # The hash column decides first; the other columns are read only if a row is needed.
        mask = None if hashes is None else _is_among(stored[start:stop], hashes)
        if start == stop or (mask is not None and not mask.any()):
            return None
        rows = self._all_rows(group).slice(start, stop - start)
        return rows if mask is None else rows.filter(pa.array(mask))

    def _groups_up_to(self, up_to: int) -> Iterator[_RowGroup]:
        """Yield the row groups that still have rows to read and begin at `up_to` or before."""
        assert self._file.least_hash is not None
        if self._file.least_hash > up_to:
            return
        if self._row_groups is None:
            self._row_groups = deque(self._read_bounds())
        while self._row_groups and self._row_groups[0].most < self._next_hash:
            self._row_groups.popleft()
        for group in self._row_groups:
            if group.least > up_to:
                return
            yield group

    def _read_bounds(self) -> Iterator[_RowGroup]:
        metadata = self._opened().metadata
        # Row-group metadata counts leaves of nested columns, not columns, so a leaf's number comes from its
        # path.
        leaves = {metadata.schema.column(leaf).path: leaf for leaf in range(metadata.num_columns)}
        for number in range(metadata.num_row_groups):
            row_group = metadata.row_group(number)
            hashes = row_group.column(leaves[HASH]).statistics
            timers = row_group.column(leaves[DUE_AT]).statistics if self._due is not None else None
            # A row group without any timer has no minimum in its statistics.
            earliest = timers.min if timers is not None and timers.has_min_max else None
            yield _RowGroup(number, hashes.min, hashes.max, earliest)

    def _fired_in(self, group: _RowGroup, due: DueRows) -> Hashes:
        # No timer of this row group is due by then, so its rows are not read.
        if due.latest is not None and (group.earliest is None or group.earliest > due.latest):
            return _NO_HASHES
        if "fired" not in group.cached:
            timers = self._read(group, [HASH, *due.columns])
            fires = np.asarray(due.fires(timers).to_numpy(zero_copy_only=False), bool)
            group.cached["fired"] = timers[HASH].to_numpy()[fires]
        fired: Hashes = group.cached["fired"]
        return fired

    def _hashes(self, group: _RowGroup) -> Hashes:
        if "hashes" not in group.cached:
            group.cached["hashes"] = self._read(group, [HASH])[HASH].to_numpy()
        hashes: Hashes = group.cached["hashes"]
        return hashes

    def _all_rows(self, group: _RowGroup) -> pa.Table:
        if "rows" not in group.cached:
            group.cached["rows"] = self._read(group, None)
        return group.cached["rows"]

    def _read(self, group: _RowGroup, columns: list[str] | None) -> pa.Table:
        parquet = self._opened()
        with data_errors(self._store, self._file):
            return parquet.read_row_group(group.number, columns=columns, use_threads=False)

    def _opened(self) -> pq.ParquetFile:
        if self._parquet is None:
            self._parquet = self._open.enter_context(open_data(self._store, self._file))
        return self._parquet

    def _close_at_end(self) -> None:
        if self._row_groups is not None and not any(True for _ in self._groups_up_to(GREATEST_HASH)):
            self._open.close()


def _any_between(hashes: Hashes, least: int, most: int) -> bool:
    place = int(np.searchsorted(hashes, least))
    return place < len(hashes) and bool(hashes[place] <= most)


def _is_among(values: Hashes, requested: Hashes) -> npt.NDArray[np.bool_]:
    """Return whether each value is one of `requested`, which is sorted and not empty."""
    places = np.minimum(np.searchsorted(requested, values), len(requested) - 1)
    among: npt.NDArray[np.bool_] = requested[places] == values
    return among


__all__ = ["DueRows", "StateReader", "live_rows", "newest_rows", "read_key"]

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

    def take(self, hashes: Hashes, up_to: int = GREATEST_HASH) -> pa.Table:
        """Return the newest rows of entries up to the hash `up_to`, without those that were taken before.

        The rows have a hash of `hashes`, which is sorted and distinct, or the hash of a timer that fires;
        they are sorted by entry. Raises LakeDamaged, LakeUnavailable, SchemaChanged.
        """
        fired = [cursor.fired(up_to) for cursor in self._cursors]
        # Without timers, the hashes of the batch are sorted and distinct already.
        requested = np.unique(np.concatenate([hashes, *fired])) if any(map(len, fired)) else hashes
        return self._newest(cursor.rows(requested, up_to) for cursor in self._cursors)

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
        tables = [
            conformed(rows, self._schema, aliases)
            for cursor_rows, aliases in zip(parts, self._aliases, strict=True)
            for rows in cursor_rows
        ]
        return newest_rows(pa.concat_tables([self._schema.empty_table(), *tables]), self._entry)


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
