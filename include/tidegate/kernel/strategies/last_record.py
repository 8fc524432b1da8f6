"""`lookup: {on_change: emit}`, a pass before the stages that remembers the last record of each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import Keys
from tidegate.kernel.counts import Counts
from tidegate.kernel.outcome import EmittedRows, count_states, emission_rows, state_rows
from tidegate.kernel.reduce import Values
from tidegate.kernel.rows import Mask, mask
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import Entry
from tidegate.kernel.strategy import Emit, EndingValue, Sameness


@dataclass(frozen=True)
class LastRecord(Emit):
    """Emits each record, and remembers it until the next one of its key, or until the key is deleted.

    A value has the whole record in `frame`, with the columns of lookups as they were joined last, and
    `deleted`. When a row of a table changes, the records that look it up come again, with the row as it is.
    """

    remembers_emissions: ClassVar[bool] = False
    reasons: ClassVar[Mapping[str, str]] = {
        "forwarded": "goes on to the stages: it is the key's last record now",
        "lookup": "the looked-up row has changed: the key's last record was joined again",
    }

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `forwarded`: no record stays behind."""
        return "forwarded"

    def ends_with(self, values: Values) -> EndingValue:
        """Return the test of deletions, after which nothing can be joined again."""
        deleted = values.field("deleted")
        return lambda output: bool(deleted(output))

    # on whole columns

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return True: no record depends on the one before it."""
        return True

    def special(self, stage: Stage, keys: Keys) -> Iterable[Mask]:
        return keys.duplicates(stage)

    def decide(self, stage: Stage, schema: pa.Schema, keys: Keys, counts: Counts) -> Iterator[pa.RecordBatch]:
        out = np.flatnonzero(~keys.is_state)
        counts["used"] += len(out)
        emitted = EmittedRows(
            *(out, keys.values("value", out), keys.timestamp[out], keys.now[out], keys.causes(out)),
            "forwarded",
        )
        yield from emission_rows(schema, keys, emitted, counts)
        last = (keys.end - 1)[~keys.is_state[keys.end - 1]]
        value = keys.values("value", last)
        live = mask(pc.invert(pc.fill_null(pc.struct_field(value, "deleted"), False)))
        remembered = pc.if_else(pa.array(live), value, pa.scalar(None, value.type))
        timestamp = pa.array(np.where(live, keys.timestamp[last], -1))
        count_states(keys, last, live, counts)
        columns = {"accumulator": remembered, "timestamp": timestamp}
        columns |= {"live": pa.array(live), "emitted_timestamp": pc.if_else(pa.array(live), timestamp, None)}
        yield from state_rows(schema, keys, last, columns)
