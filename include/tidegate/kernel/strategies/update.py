"""`on: update`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.columns import Keys, accumulated
from tidegate.kernel.counts import Counts
from tidegate.kernel.options import option
from tidegate.kernel.outcome import EmittedRows, count_states, emission_rows, state_rows
from tidegate.kernel.rows import Mask, mask
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import Entry
from tidegate.kernel.strategies.at_once import FIRST_SEEN, first_seen
from tidegate.kernel.strategy import CLOCK, Clock, Emit, Sameness


@dataclass(frozen=True)
class Update(Emit):
    """Emit with every accepted record; a deletion by default only if consumers have seen the key."""

    clock: Clock = option(CLOCK, "clock: stream", default="stream")
    deletions: Literal["seen", "all", "none"] = option(
        "Which records without a value go out as deletions: those of keys that consumers have seen, `all`, "
        "or `none`.",
        "deletions: all",
        default="seen",
    )
    on: ClassVar[str] = "update"
    when: ClassVar[str] = "With every record."
    reasons: ClassVar[Mapping[str, str]] = FIRST_SEEN

    @property
    def emits_deletions(self) -> bool:
        return self.deletions != "none"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `new`, `changed` or `deleted`; None for deletions that do not go out."""
        if now is None and self.deletions != "seen":
            return "deleted" if self.deletions == "all" else None
        return first_seen(entry, now)

    def emits_whole_values(self, emitted: tuple[str, ...]) -> bool:
        """Return True: every value is emitted."""
        return True

    def decides_latest(self, value: pa.StructType) -> bool:
        """Return True: nothing is compared."""
        return True

    def emits_latest(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray
    ) -> pa.BooleanArray:
        """Return True for each value, and for deletions as `deletions` says."""
        if self.deletions == "seen":
            return pc.or_(now.is_valid(), has_last)
        return pc.or_(now.is_valid(), pa.scalar(self.deletions == "all"))

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return whether each record emits the aggregates of its key including the record."""
        return stage.window is None and stage.where is None and stage.reduce.runs_on_columns(value)

    def special(self, stage: Stage, keys: Keys) -> Iterable[Mask]:
        has_value, has_emitted = (mask(keys.column(name).is_valid()) for name in ("accumulator", "emitted"))
        # a value that was never emitted: the pipeline file was edited
        unsent = keys.is_state & (has_value != has_emitted)
        overflows = stage.reduce.may_overflow(keys)
        return ~keys.at_rest(), unsent, overflows, keys.tombstones(), *keys.duplicates(stage)

    def decide(self, stage: Stage, schema: pa.Schema, keys: Keys, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Emit a result with each record; a key's last result is its new state."""
        results = stage.reduce.running(keys, schema.field("accumulator").type)
        timestamps = accumulated(np.maximum, np.maximum(keys.timestamp, -1), keys)  # -1: as entries begin
        records = np.flatnonzero(~keys.is_state)
        counts["used"] += len(records)
        new = _first_of_all(keys)[records]
        emitted = EmittedRows(
            records,
            results.take(pa.array(records)),
            timestamps[records],
            keys.now[records],
            keys.causes(records),
            pc.if_else(pa.array(new), "new", "changed"),
        )
        yield from emission_rows(schema, keys, emitted, counts)
        last = (keys.end - 1)[~keys.is_state[keys.end - 1]]
        values = results.take(pa.array(last))
        columns = {
            "accumulator": values,
            "emitted": values,
            "timestamp": timestamps[last],
            "emitted_timestamp": timestamps[last],
        }
        count_states(keys, last, np.ones(len(last), np.bool_), counts)
        yield from state_rows(schema, keys, last, columns)


def _first_of_all(keys: Keys) -> Mask:
    """Return the records before which their key has emitted nothing."""
    after = np.append(False, keys.is_state[:-1])
    begins = np.zeros(len(after), np.bool_)
    begins[keys.first] = True
    has_value = mask(keys.column("emitted").is_valid())
    first: Mask = (begins & ~keys.is_state) | (after & ~begins & ~np.append(False, has_value[:-1]))
    return first
