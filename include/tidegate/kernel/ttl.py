"""`ttl`: a key's state is removed so long after the last record that changed it.

The rule per record is `extended` and `is_over`, which `folding` and `loop` ask; `may_end` and `state_columns`
are the rule on whole columns, for keys that certainly live through the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernel.options import BadOption, Duration, HasOptions, option
from tidegate.kernel.ordering import last_where, starts
from tidegate.kernel.rows import STATE, Ints, Mask, mask
from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.windows import write_duration

if TYPE_CHECKING:
    from tidegate.kernel.columns import Keys
    from tidegate.kernel.reduce import Reduce
    from tidegate.kernel.strategy import Emit
    from tidegate.kernel.windows import Window


@dataclass(frozen=True)
class TimeToLive(HasOptions):
    """Remove a key's state so long after the last record that changed it, by the stage's clock.

    A record that changes nothing, as one that `change` suppresses, does not extend the time. What waits is
    emitted before. A record at or after the end finds no state, whoever made the time pass.
    """

    after_ms: Duration = option(
        "The state of a key is removed so long after the last record that changed it.",
        "after: 7d",
        written="after",
    )
    emit: Literal["nothing", "deletion"] = option(
        "What is emitted then: `nothing`, or a `deletion` if consumers have a value of the key.",
        "emit: deletion",
        default="nothing",
    )
    reasons: ClassVar[Mapping[str, str]] = {
        "expired": "its time to live is over: no record has changed it for so long"
    }

    def extended(self, entry: Entry, timestamp: int) -> int:
        """Return the end of the entry's time to live after a record that has changed it.

        A record that is older than another one does not shorten it.

        Args:
            entry: The entry with the record.
            timestamp: The record's timestamp.
        """
        end = timestamp + self.after_ms
        return end if entry.expires_at is None else max(entry.expires_at, end)

    @staticmethod
    def is_over(entry: Entry, at: int) -> bool:
        """Return whether the entry's time to live is over at an instant, in epoch ms, and nothing waits."""
        return entry.expires_at is not None and entry.expires_at <= at and not entry.pending

    # for the grammar

    def require_fit(self, emit: Emit, reduce: Reduce, window: Window | None) -> None:
        """Check that state can expire in a stage with these parts. Raises BadOption."""
        if window is not None:
            raise BadOption(
                "`ttl` does not go with `window`, whose end removes the state", "Leave `ttl` out."
            )
        if emit.on == "any":
            fix = "Leave `ttl` out, or use one trigger; or let the state of a stage after this one expire."
            raise BadOption("`ttl` does not go with `any`, whose triggers wait for different times", fix)
        if emit.bound is not None:
            fix = "Let the buffer have no bound (`when_full: spill`), or leave `ttl` out."
            raise BadOption("a bounded buffer keeps a key's state per partition, without a `ttl`", fix)
        held_ms = emit.longest_hold_ms(window)
        if emit.holds and not held_ms:
            fix = (
                "Add `after`, at most as long as `ttl`: then what waits is emitted before the state expires."
            )
            raise BadOption("the state would expire with records that wait for a threshold", fix)
        if held_ms > self.after_ms:
            fix = f"Use a `ttl` of at least {write_duration(held_ms)}."
            raise BadOption("the state would expire before the values that wait are emitted", fix)
        if self.emit == "deletion" and (reduce.lists_events or (emit.empties and not reduce.newest_only)):
            fix = "Write `ttl: {after: 7d}`, which emits nothing."
            raise BadOption("no emission of this stage replaces another one, so there is none to delete", fix)

    # on whole columns

    def may_end(self, keys: Keys) -> Mask:
        """Return the rows because of which the state of their key may expire in this batch. The others' keys
        certainly live.
        """
        latest = max([keys.batch.least_end, *keys.batch.ends.values(), int(keys.now.max())])
        ends = keys.timestamp + self.after_ms
        stored = [
            pc.fill_null(keys.values(name, keys.state), NEVER).to_numpy() for name in ("expires_at", "due_at")
        ]
        ends[keys.state] = np.minimum(*stored)
        return ends <= latest

    def state_columns(self, candidates: pa.RecordBatch, out: pa.BooleanArray) -> dict[str, pa.Array]:
        """Return the columns of the state rows that the last emission of each key leaves; null for deletions.

        Args:
            candidates: State rows and records that may be emitted, of keys that live through the batch.
            out: Whether a candidate is emitted; each one changes its key.
        """
        start = starts(candidates.column("key"))
        state = last_where(pc.equal(candidates.column("kind"), STATE), start)
        emitted = candidates.filter(out)
        first = mask(starts(emitted.column("key")))
        stored = pc.fill_null(candidates.column("expires_at").take(state.filter(out)), -NEVER).to_numpy()
        deleted = mask(emitted.column("value").is_null())
        # after a deletion, nothing is left that an earlier record could have extended
        begins = first | np.append(True, deleted[:-1])[: len(first)]
        last = np.append(first[1:], True)[: len(first)]
        ends = emitted.column("timestamp").to_numpy() + self.after_ms
        ends = np.where(first, np.maximum(ends, stored), ends)
        newest = _newest_of_runs(ends, begins)[last]
        times = pa.array(newest, pa.int64(), mask=deleted[last])
        return {"expires_at": times, "due_at": times}


def _newest_of_runs(values: Ints, begins: Mask) -> Ints:
    """Return per element the largest value of its run."""
    if not len(values):
        return values
    first = np.flatnonzero(begins)
    newest: Ints = np.repeat(np.maximum.reduceat(values, first), np.diff(np.append(first, len(values))))
    return newest
