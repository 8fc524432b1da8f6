"""`sequence`, a pass before the stages: changes that come too late have no effect."""

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
from tidegate.kernel.rows import Ints, Mask, mask
from tidegate.kernel.stage import Stage
from tidegate.kernel.state import NEVER, Entry
from tidegate.kernel.strategies.at_once import FIRST_SEEN
from tidegate.kernel.strategy import Emit, Marker, Sameness

CHANGE, DELETION = "+", "-"
"""The first character of a mark; the change's sequence follows."""
SEPARATOR = "\x00"
"""Separates the parts of a sequence: it sorts before any character that a part can contain."""


def mark(sequence: str, deleted: bool) -> str:
    """Return the mark of a key's newest change. `sequence` is a text that sorts as the sequences do.

    Example: `mark("0007", deleted=True)` is `-0007`.
    """
    return (DELETION if deleted else CHANGE) + sequence


def described_mark(text: str) -> dict[str, Any]:
    """Return a mark for people: the parts of the sequence, and whether the change is a deletion.

    Example: `described_mark("-0007")` is `{"sequence": "0007", "deleted": True}`.
    """
    sequence = {"sequence": ", ".join(text[1:].split(SEPARATOR))}
    return {**sequence, "deleted": True} if text[0] == DELETION else sequence


@dataclass(frozen=True)
class InSequence(Emit):
    """Emits a change whose sequence is later than that of its key's last change; others have no effect.

    Which changes are emitted depends on the order in the log; the last one does not. An existing key is
    remembered as long as it exists. A deleted key is remembered for `keep_ms` from its deletion's timestamp
    (None: for ever); a change `keep_ms` or more after that begins the key anew. So a record of a key that
    does not exist is late if it is `keep_ms` or more behind its partition's time: a deletion that came after
    it may be forgotten. Within one partition, a deleted key never comes back.
    """

    keep_ms: int | None = None
    expires: ClassVar[bool] = True
    forgets_suppressed: ClassVar[bool] = True
    reasons: ClassVar[Mapping[str, str]] = {
        "new": FIRST_SEEN["new"],
        "later": "later than the key's last change",
        "outdated": "dropped: not later than the key's last change",
    }
    suppressed: ClassVar[str] = "outdated"

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return `new` for the first change of a key, `later` for a later one; else None.

        None is also returned for a record without a sequence, which follows a deletion with one. `same` says
        whether the change is not later.
        """
        assert same is not None, "sequences are compared"
        if now is None:
            return None
        if entry.emitted is None:
            return "new"
        deleted_at = entry.emitted_timestamp or 0
        begins_anew = (
            self.keep_ms is not None and _is_deleted(entry) and timestamp >= deleted_at + self.keep_ms
        )
        return "later" if begins_anew or not same(entry.emitted, now, deleted_at, timestamp) else None

    @property
    def late_after_ms(self) -> int | None:
        """The distance behind the partition's time at which a missing key may have been deleted."""
        return self.keep_ms

    def may_be_late(self, entry: Entry) -> bool:
        """Return False for an existing key: its sequence decides."""
        return entry.emitted is None or _is_deleted(entry)

    def due(self, entry: Entry) -> int:
        """Return when a deletion is forgotten: every change that it would suppress is late then."""
        if self.keep_ms is None or entry.emitted_timestamp is None or not _is_deleted(entry):
            return NEVER
        return entry.emitted_timestamp + 2 * self.keep_ms

    @property
    def marks(self) -> bool:
        """True: a mark has the sequence of the newest change."""
        return True

    def marker(self, values: Values) -> Marker:
        """Return the function that makes marks of a change's columns `sequence` and `deleted`."""
        sequence, deleted = values.field("sequence"), values.field("deleted")
        return lambda output, timestamp: mark(sequence(output), deleted(output))

    def repeats(self, last: str, now: str) -> bool:
        """Return whether a change is not later; the first characters of marks do not count.

        Example: `+0007` repeats `-0007`, and `+0008` does not.
        """
        return now[1:] <= last[1:]

    def described(self, remembered: Any) -> Mapping[str, Any]:
        """Return the key's newest sequence, and whether it is that of a deletion."""
        return described_mark(remembered)

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return True: all sequences can be ranked."""
        return True

    def special(self, stage: Stage, keys: Keys) -> Iterable[Mask]:
        """Return masks of the rows whose keys are left to `loop`.

        If deletions are forgotten, these are keys with a deletion before their last row, and keys with
        records that may be too late to be compared with one.
        """
        # deletions that are kept for ever never expire, so the largest sequence decides alone
        if self.keep_ms is None:
            return (keys.superseded(),)
        records = ~keys.is_state
        late = records & (keys.now - keys.timestamp >= self.keep_ms)
        last = np.zeros(len(records), np.bool_)
        last[keys.end - 1] = True
        forgotten = last & (_due(self, keys.timestamp) <= _ends(keys, last))
        deletions = _field(keys, "deleted")
        return (
            keys.superseded(),
            keys.is_state & mask(keys.column("due_at").is_valid()),
            records & deletions & (~last | forgotten),
            late,
        )

    def decide(self, stage: Stage, schema: pa.Schema, keys: Keys, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Emit changes whose sequence is beyond the largest before them."""
        rank = _ranks(keys)
        before = _largest_before(keys, rank)
        out = np.flatnonzero(~keys.is_state & (rank > before))
        counts["used"] += len(out)
        counts["deduplicated"] += int((~keys.is_state).sum()) - len(out)
        emitted = EmittedRows(
            out,
            keys.values("value", out),
            keys.timestamp[out],
            keys.now[out],
            keys.causes(out),
            pc.if_else(pa.array(before[out] > 0), "later", "new"),
        )
        yield from emission_rows(schema, keys, emitted, counts)
        # the last emission of each key
        last = out[np.append(keys.number[out][1:] != keys.number[out][:-1], True)] if len(out) else out
        count_states(keys, last, np.ones(len(last), np.bool_), counts)
        yield from state_rows(schema, keys, last, _state(self, keys, last))


def _is_deleted(entry: Entry) -> bool:
    return bool(entry.emitted is not None and entry.emitted[0] == DELETION)


def _state(emit: InSequence, keys: Keys, last: Ints) -> dict[str, pa.Array]:
    """Return the state columns of the newest change of each key."""
    value = keys.values("value", last)
    deleted, sequence = pc.struct_field(value, "deleted"), pc.struct_field(value, "sequence")
    timestamp = pa.array(keys.timestamp[last])
    due = pa.nulls(len(last), pa.int64())
    if emit.keep_ms is not None:
        due = pc.if_else(deleted, pa.array(_due(emit, keys.timestamp[last])), None)
    return {
        "digest": pc.binary_join_element_wise(pc.if_else(deleted, DELETION, CHANGE), sequence, ""),
        "timestamp": timestamp,
        "emitted_timestamp": timestamp,
        "due_at": due,
    }


def _due(emit: InSequence, timestamp: Ints) -> Ints:
    """Return when a deletion at each row's time is forgotten, epoch ms."""
    assert emit.keep_ms is not None, "otherwise none is"
    return timestamp + 2 * emit.keep_ms


def _ends(keys: Keys, requested: Mask) -> Ints:
    """Return per row the time of its partition at the end of the batch."""
    return keys.batch_ends(np.arange(len(requested)), requested)


def _field(keys: Keys, name: str) -> Mask:
    return mask(pc.fill_null(pc.struct_field(keys.column("value"), name), False))


def _ranks(keys: Keys) -> Ints:
    """Return per row the rank of its sequence among all rows' sequences, from 1; 0 if it has none."""
    record_sequences = pc.struct_field(keys.column("value"), "sequence")
    state_sequences = pc.utf8_slice_codeunits(keys.column("digest"), 1)
    sequences = pc.if_else(pa.array(keys.is_state), state_sequences, record_sequences)
    rank: Ints = pc.rank(sequences, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    rank[mask(sequences.is_null())] = 0
    return rank


def _largest_before(keys: Keys, rank: Ints) -> Ints:
    """Return per row the largest rank among earlier rows of its key; 0 if there is none."""
    # Each key's ranks get a base above all ranks of earlier keys, so one running maximum serves all keys.
    base = keys.number * (int(rank.max()) + 1)
    largest = np.maximum.accumulate(rank + base)
    before = np.zeros_like(rank)
    before[1:] = largest[:-1] - base[1:]
    return np.maximum(before, 0)
