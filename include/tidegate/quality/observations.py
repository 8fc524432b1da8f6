"""Decisions of the built-in expectations, as pure functions that return what they observed: keys, final
values, and shares of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.quality.facts import BatchCounts
from tidegate.storage.schema import HASH, KEY, KEY_COLUMNS, REASON, WINDOW, parts_of

SAMPLE = 20
"""The number of failing rows whose keys are listed. Great Expectations lists as many."""
FINAL_COLUMNS = (HASH, KEY, *WINDOW, REASON)
_ENTRY = [KEY, *WINDOW]
Before = Callable[[int, int], Iterable[pa.Table]]
"""(least hash, largest hash) -> emissions of earlier batches: at least all with a hash between these."""
KEY_TEXT_AND_COLUMNS = (KEY, KEY_COLUMNS)


@dataclass(frozen=True)
class Observation:
    """Whether the expectation is met, and the value that was observed.

    Args:
        elements: The number of rows that were checked; None if the expectation does not count rows.
        unexpected: The number of rows among them that break the expectation.
        sample: Keys of some of these rows.
    """

    passed: bool
    value: str | float
    elements: int | None = None
    unexpected: int | None = None
    sample: Sequence[Any] = ()

    @classmethod
    def of_rows(cls, what: str, elements: int, unexpected: int, sample: Sequence[Any]) -> Observation:
        """Return an observation of rows that is met if `unexpected` is 0. `what` describes unexpected
        rows.

        Example::

            Observation.of_rows("emissions have a null in their key", 10, 0, []).value
            # "0 of 10 emissions have a null in their key"
        """
        return cls(
            not unexpected, f"{unexpected} of {elements} {what}", elements, unexpected, sample[:SAMPLE]
        )

    def result(self) -> dict[str, Any]:
        """Return the observation as the result that Great Expectations expects from a custom expectation."""
        details: dict[str, Any] = {"observed_value": self.value}
        if self.elements is not None and self.unexpected is not None:
            percent = 100 * self.unexpected / self.elements if self.elements else 0.0
            details |= {
                "element_count": self.elements,
                "unexpected_count": self.unexpected,
                "unexpected_percent": percent,
                "partial_unexpected_list": list(self.sample),
                "partial_unexpected_index_list": [{KEY: key} for key in self.sample],
            }
        return {"success": self.passed, "result": details}


def one_final_per_entry(parts: Iterable[pa.Table], before: Before | None = None) -> Observation:
    """Check that no entry (key and window) has two emissions, in this batch or in what `before` reads.

    Each emission of an entry after its first is unexpected. Emissions of a promotion are ignored. The sample
    contains keys. Memory holds one part of both inputs at a time, and all emissions of one key.

    Args:
        parts: Emissions with the columns `FINAL_COLUMNS`, in the order of the outbox: those of a key follow
            each other.
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
        rows = part.select(FINAL_COLUMNS)
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


def keys_not_null(parts: Iterable[pa.Table]) -> Observation:
    """Check that each emission has a key, and no null in a column that the key is made of.

    Args:
        parts: Emissions with the columns `KEY_TEXT_AND_COLUMNS`, deletions included. The sample contains the
            keys' texts.
    """
    elements = unexpected = 0
    sample: list[str | None] = []
    for rows in parts:
        bad = rows.filter(_has_null(rows))
        elements, unexpected = elements + rows.num_rows, unexpected + bad.num_rows
        sample += bad[KEY].slice(0, SAMPLE - len(sample)).to_pylist()
    return Observation.of_rows("emissions have a null in their key", elements, unexpected, sample)


def _has_null(rows: pa.Table) -> pa.ChunkedArray:
    has_null = pc.is_null(rows[KEY])
    # a key that is made of columns has a text even if one of the columns is null
    for column in parts_of(rows[KEY_COLUMNS]).values():
        has_null = pc.or_(has_null, pc.is_null(column))
    return has_null


def counts_add_up(counts: BatchCounts, outbox_rows: int, lacks_erased: bool = False) -> Observation:
    """Check that each record that was read has one fate, and that the outbox has each emission for sinks.

    `came_in = used + quarantined + deduplicated + late`, and the outbox's files have `outgoing` rows. If an
    erasure can have removed some of them (`lacks_erased`), the files may have fewer.

    Example::

        counts_add_up(BatchCounts(10, 8, 1, 1, 0, 3, 3), outbox_rows=3).passed  # True
    """
    missing, unsent = counts.came_in - counts.accounted, counts.outgoing - outbox_rows
    # a record that `explode` makes no records of is used, and counted nowhere, so some may be missing
    is_whole = missing >= 0 if counts.explodes else missing == 0
    text = (
        f"{counts.came_in} came in: {counts.used} used + {counts.quarantined} quarantined + "
        f"{counts.deduplicated} deduplicated + {counts.late} late; "
        f"{counts.outgoing} go out, the outbox has {outbox_rows}"
    )
    is_sent = unsent >= 0 if lacks_erased else not unsent
    return Observation(is_whole and is_sent, f"{text}, without erased keys" if lacks_erased else text)


def share_at_most(counts: BatchCounts, records: int, most: float) -> Observation:
    """Check that at most the share `most` (0 to 1) of the records that were read is among these `records`.

    Example::

        share_at_most(BatchCounts(100, 98, 2, 0, 0, 5, 5), records=2, most=0.01).passed  # False
    """
    share = counts.share(records)
    return Observation(share <= most, share)


@dataclass(frozen=True)
class UsualRange:
    """The range `mean ± max(deviations * d, slack)` of the shares of earlier batches.

    d is the standard deviation of all of them, not of a sample.

    Args:
        slack: In shares, 0 to 1.
        least_batches: With fewer batches, there is no range.
        least_records: Batches that read fewer records are ignored.
    """

    deviations: float = 3.0
    slack: float = 0.05
    least_batches: int = 5
    least_records: int = 100


_USUAL = UsualRange()


def emitted_share_as_before(
    counts: BatchCounts, history: Sequence[BatchCounts], usual: UsualRange = _USUAL
) -> Observation:
    """Check that the share of the records read that the stage emitted is within the usual range.

    If there are too few earlier batches, or this batch read too little, the expectation is met. Batches count
    alike, whatever their size.

    Args:
        history: The counts of earlier batches.
        usual: How the range is computed.
    """
    shares = [past.share(past.emitted) for past in history if past.came_in >= usual.least_records]
    share = counts.share(counts.emitted)
    if counts.came_in < usual.least_records or len(shares) < max(usual.least_batches, 1):
        return Observation(
            True, f"{share:.4f}; {len(shares)} earlier batches are too few, or the batch is too small"
        )
    mean = sum(shares) / len(shares)
    deviation = sqrt(sum((past - mean) ** 2 for past in shares) / len(shares))
    room = max(usual.deviations * deviation, usual.slack)
    least, most = max(0.0, mean - room), mean + room
    # sums of doubles are not exact: a constant share must not fall out of its own range
    is_within = least - 1e-12 <= share <= most + 1e-12
    return Observation(is_within, f"{share:.4f}; {len(shares)} earlier batches: {least:.4f} to {most:.4f}")
