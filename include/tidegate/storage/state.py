"""Read state beside a sorted batch: the newest row of each entry that the batch needs, and no others.

State files are sorted by hash. They are read side by side in the order of hashes, along with the batch. A row
group without one of the batch's hashes, and without a timer that fires, is skipped by its statistics; in the
other row groups, values are read only if a row is needed. So a pass reads each file once, and memory has at
most a row group of each file at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.keys import GREATEST_HASH, LEAST_HASH, key_hash
from tidegate.storage.aliases import NO_ALIASES, Aliases, aliases_in
from tidegate.storage.cursor import Cursor, DueRows
from tidegate.storage.datafile import stored_schema
from tidegate.storage.evolution import conformed
from tidegate.storage.manifest import DataFile
from tidegate.storage.schema import HASH, KEY, LIVE, Hashes, entry_columns, newest_rows
from tidegate.storage.store import Store

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
