"""The rule that a window of a key has one final value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.quality.builtin.observation import SAMPLE, Observation
from tidegate.storage.schema import HASH, KEY, REASON, WINDOW

COLUMNS = (HASH, KEY, *WINDOW, REASON)
_ENTRY = [KEY, *WINDOW]

Before = Callable[[int, int], Iterable[pa.Table]]
"""(least hash, largest hash) -> emissions of earlier batches: at least all with a hash between these."""


def one_final_per_entry(parts: Iterable[pa.Table], before: Before | None = None) -> Observation:
    """Check that no entry (key and window) has two emissions, in this batch or in what `before` reads.

    Each emission of an entry after its first is unexpected. Emissions of a promotion are ignored. The sample
    contains keys. Memory holds one part of both inputs at a time, and all emissions of one key.

    Args:
        parts: Emissions with the columns `COLUMNS`, in the order of the outbox: those of a key follow each
            other.
        before: Reads the emissions of earlier batches; None checks only this batch.
    """
    elements = unexpected = 0
    sample: list[str] = []
    for rows in _whole_keys(parts):
        repeated = _repeated(rows, before)
        elements += rows.num_rows
        unexpected += pc.sum(repeated["unexpected"]).as_py() or 0
        sample += repeated[KEY].slice(0, SAMPLE - len(sample)).to_pylist()
    return Observation.of_rows("finals are not the first of window and key", elements, unexpected, sample)


def _whole_keys(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows, split only between keys."""
    rest: pa.Table | None = None
    for part in parts:
        rows = part.select(COLUMNS)
        # a promotion sends values again that the generation had already emitted
        rows = rows.filter(pc.not_equal(rows[REASON], "promoted"))
        rows = rows if rest is None else pa.concat_tables([rest, rows])
        if not rows.num_rows:
            continue
        # The last key may go on in the next part: its rows wait for that part.
        is_last = pc.equal(rows[KEY], rows[KEY][-1])
        rest = rows.filter(is_last)
        if rest.num_rows < rows.num_rows:
            yield rows.filter(pc.invert(is_last))
    if rest is not None:
        yield rest


def _repeated(rows: pa.Table, before: Before | None) -> pa.Table:
    """Return the entries with unexpected emissions: `key`, and `unexpected`, the number of them."""
    entries = _entries(rows)
    extra = pc.subtract(entries["count"], 1)
    if before is not None:
        least, most = pc.min_max(rows[HASH]).values()
        # The outbox is sorted by hash, so the bounds of a part exclude most of the earlier files.
        earlier = [_entries(part) for part in before(least.as_py(), most.as_py())]
        extra = pc.add(extra, pc.cast(_is_among(entries, earlier), pa.int64()))
    return pa.table({KEY: entries[KEY], "unexpected": extra}).filter(pc.greater(extra, 0))


def _entries(rows: pa.Table) -> pa.Table:
    """Return one row per entry with the number of its emissions, `count`."""
    # a stage without windows has null windows, and Arrow's join matches no nulls
    columns = {KEY: rows[KEY]} | {name: pc.fill_null(rows[name].cast(pa.int64()), -1) for name in WINDOW}
    counted = pa.table(columns).group_by(_ENTRY, use_threads=False).aggregate([([], "count_all")])
    return counted.select([*_ENTRY, "count_all"]).rename_columns([*_ENTRY, "count"])


def _is_among(entries: pa.Table, tables: Iterable[pa.Table]) -> pa.BooleanArray:
    """Return whether each entry is in one of the tables."""
    is_among = pa.repeat(False, entries.num_rows)
    numbered = entries.select(_ENTRY).append_column("row", pa.array(range(entries.num_rows), pa.int64()))
    for table in tables:
        rows = numbered.join(table.select(_ENTRY), _ENTRY, join_type="left semi")["row"]
        is_among = pc.or_(is_among, pc.is_in(numbered["row"], value_set=rows.combine_chunks()))
    return is_among
