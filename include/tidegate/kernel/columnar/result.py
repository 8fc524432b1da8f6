"""The results of kernels on whole columns: emissions and state as rows of the output schema, and their
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columnar.keys import Ints, Keys, Mask
from tidegate.kernel.counts import Counts
from tidegate.kernel.grouping import last_where, row_numbers, starts
from tidegate.kernel.ordering import turns_of
from tidegate.kernel.rows import EMISSION, STATE, fill

_FROM_ROW = ("hash", "key", "topic", "partition", "offset", "source")


@dataclass(frozen=True)
class EmittedRows:
    """Emissions in their order.

    Args:
        row: the last record that each emission contains.
        value: the emitted values; null is a deletion.
        timestamp: epoch ms.
        at: when the emission happened, epoch ms.
        cause: the row of the record that triggers the emission; or FIRST, TIMER or LAST.
        reason: one reason per emission, or one for all.
        window: start and end of each emission's window, epoch ms.
    """

    row: Ints
    value: pa.Array
    timestamp: Ints
    at: Ints
    cause: Ints
    reason: pa.StringArray | str
    window: tuple[Ints, Ints] | None = None


def emission_rows(
    schema: pa.Schema, keys: Keys, emitted: EmittedRows, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Yield emissions as one batch of `schema`, in the order of `emitted`, and count them; nothing if it is
    empty.

    `ordinal` counts from 0 within each run of rows of one key.

    Args:
        schema: The kernel's output schema.
        keys: The keys whose rows `emitted` names.
        counts: Gets the number of emissions, also by reason.
    """
    number = len(emitted.row)
    if not number:
        return
    counts["emitted"] += number
    counts["emitted-tombstones"] += emitted.value.null_count
    reason = pa.repeat(emitted.reason, number) if isinstance(emitted.reason, str) else emitted.reason
    counts.include(
        {"emitted." + tally["values"]: tally["counts"] for tally in pc.value_counts(reason).to_pylist()}
    )
    columns = _row_columns(keys, emitted.row) | turns_of(keys.values, emitted.cause)
    if emitted.window is not None:
        columns |= {"window_start": pa.array(emitted.window[0]), "window_end": pa.array(emitted.window[1])}
    start = starts(columns["key"])
    yield fill(
        schema,
        EMISSION,
        columns
        | {
            "value": emitted.value,
            "timestamp": pa.array(emitted.timestamp),
            "at": pa.array(emitted.at),
            "reason": reason,
            "ordinal": pc.subtract(row_numbers(number), last_where(start, start)),
        },
        number,
    )


def state_rows(
    schema: pa.Schema, keys: Keys, row: Ints, columns: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Yield the state of entries as one batch of `schema`; nothing if there are no entries.

    `row` is the row that changed each entry last, which has its key and position. Columns that are not in
    `columns` are null; by default the entry is live and holds nothing back.

    Args:
        row: A row number per entry.
        columns: Column of the output schema -> one value per entry.
    """
    number = len(row)
    if not number:
        return
    zeros = pa.repeat(pa.scalar(0, pa.int64()), number)
    defaults = {"live": pa.repeat(True, number)}
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()
    }
    yield fill(
        schema,
        STATE,
        _row_columns(keys, row) | {"pending": zeros, "bytes": zeros} | defaults | arrays,
        number,
    )


def count_states(keys: Keys, row: Ints, live: Mask, counts: Counts) -> None:
    """Count entries whose state changed; `row` has one row of each key.

    Args:
        live: Per element of `row`, whether the entry exists afterwards.
    """
    counts["state-rows-changed"] += len(row)
    # a key's state row comes first; a record there has null, and nothing was live
    was_live = pc.fill_null(keys.values("live", keys.first[keys.number[row]]), False)
    counts["state-rows"] += int(live.sum()) - was_live.true_count


def count_overtime(overtime: Ints, counts: Counts) -> None:
    """Count timers that fired, and the ms from when each was due to when it fired.

    Args:
        overtime: One element per timer, in ms.
    """
    if overtime.size:
        counts["suppression-overtime-count"] += overtime.size
        counts["suppression-overtime-sum"] += int(overtime.sum())
        counts.include({"suppression-overtime-min": int(overtime.min())})


def _row_columns(keys: Keys, row: Ints) -> dict[str, pa.Array]:
    return {name: keys.values(name, row) for name in _FROM_ROW}
