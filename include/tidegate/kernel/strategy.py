"""The decisions of a strategy: whether a value is emitted with its record, and when its timer fires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.kernel.bounded import Bound
from tidegate.kernel.options import HasOptions, Sample
from tidegate.kernel.state import NEVER, Entry

if TYPE_CHECKING:
    from tidegate.expressions import Condition
    from tidegate.kernel.columns import Keys
    from tidegate.kernel.counts import Counts
    from tidegate.kernel.reduce import Values
    from tidegate.kernel.rows import Mask
    from tidegate.kernel.stage import Stage
    from tidegate.kernel.strategies.threshold import Envelope
    from tidegate.kernel.windows import Window

Time = TypeVar("Time", int, npt.NDArray[np.int64])
"""A time in epoch ms, or many."""

Sameness = Callable[[Any, Any, int, int], bool]
"""Returns whether two outputs are the same to the stage: (last emitted, now, timestamp of each)."""

Marker = Callable[[Any, int], str]
"""Returns the mark that is stored in place of an output, from the output and its timestamp."""

Clock = Literal["stream", "run"]

CLOCK = "Which time counts: that of the records (`stream`), or also the batches' clocks (`run`)."

Retype = Callable[["Condition", tuple[str, ...] | None], "Condition"]
"""Returns a condition over `old` and `new`, typed for these columns of a stage; None: one over a record."""

Ending = Callable[[Entry, int], str | None]
"""Returns the reason why a record, which its entry contains, ends the wait by its own value; or None."""

EndingValue = Callable[[Any], bool]
"""Returns whether an emission, which it gets as an output, is the last one of its entry."""

StateChange = tuple[str, Any, Any, str]
"""An option that state depends on: its name in the file, its values before and after, and the reason."""


class Emit(HasOptions):
    """A strategy: its options, and its rules. It has no state: all state of a key is in the `Entry`.

    A strategy that emits values at once implements `on_record`; one that holds them back sets `holds`, and
    implements `due` and `on_time`. The rules per record come first here, then those on whole columns, then
    what the grammar asks.
    """

    on: ClassVar[str] = ""
    """Its name in a file; empty for a pass before the stages, which has none."""
    when: ClassVar[str] = ""
    """When it emits, in a few words for editors."""
    holds: ClassVar[bool] = False
    """Whether values are held back until a timer fires or a buffer is full."""
    empties: ClassVar[bool] = False
    """Whether emitted records are no longer part of the value."""
    drains: ClassVar[bool] = True
    """Whether a drain may emit values that are held back before their time."""
    restarts: ClassVar[bool] = False
    """Whether each record that waits starts the timer anew, if it is the newest of them; a record beyond the
    timer comes after it.
    """
    expires: ClassVar[bool] = False
    """Whether an entry expires when its timer has fired, with or without a window."""
    forgets_suppressed: ClassVar[bool] = False
    """Whether a record that is not emitted leaves no trace in state (unless the value is an aggregate)."""
    is_change: ClassVar[bool] = False
    """Whether each emission differs from the one before it, heartbeats aside."""
    suppressed: ClassVar[str] = "suppressed"
    """The fate of a record that is not emitted."""
    reasons: ClassVar[Mapping[str, str]] = {}
    """The reasons of its emissions, and the fates of its records -> their meaning, for people."""
    timer_reason: ClassVar[str] = ""
    """The reason of emissions when the timer fires."""
    remembers_emissions: ClassVar[bool] = True
    """Whether state has the last emission, beside the value, if there is one that could be replaced."""
    only_if_changed: ClassVar[frozenset[str]] = frozenset()
    """The reasons of a value that waited which is emitted only if it differs from the last emitted one."""
    sample: ClassVar[Sample | None] = None
    """What `tidegate init` offers; None: nothing."""
    clock: Clock = "stream"
    buffer: Bound | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that it joins; empty: the stage has one input, which `from` names."""
        return ()

    @property
    def window(self) -> Window | None:
        """The window that the strategy itself has; None: the stage declares it, if it has one."""
        return None

    @property
    def marks(self) -> bool:
        """Whether state has a mark of the last emission, such as a hash, in place of its value."""
        return False

    @property
    def forwards_only(self) -> bool:
        """Whether it only forwards or suppresses records, in a pass before the stages."""
        return not self.on

    @property
    def bound(self) -> Bound | None:
        """The bound of its buffer; None: none, or it spills, and is state on disk."""
        return None if self.buffer is None or self.buffer.when_full == "spill" else self.buffer

    @property
    def max_text_bytes(self) -> int | None:
        """The limit of an emission's JSON text, for which the bytes of events are counted; None: no limit."""
        return None

    @property
    def remembers_flush(self) -> bool:
        """Whether an entry remembers when it was emitted last, since the next time depends on it."""
        return False

    @property
    def waits_from_arrival(self) -> bool:
        """Whether values wait from the time of their partition, and not from a timestamp."""
        return False

    @property
    def repeats_by_clock(self) -> bool:
        """Whether a timer repeats an emitted value that nothing holds back."""
        return False

    @property
    def emits_deletions(self) -> bool:
        """Whether the deletion of a value that consumers have is emitted."""
        return True

    @property
    def spaces_emissions(self) -> bool:
        """Whether there is a least time between two emissions of an entry, in which values wait."""
        return False

    def not_before(self, entry: Entry) -> int:
        """Return the time before which the entry emits nothing, in epoch ms; -1: it may emit at any time."""
        return -1

    @property
    def is_final(self) -> bool:
        """Whether a value is emitted once per key and window, and never again."""
        return False

    @property
    def fires_without_buffer(self) -> bool:
        """Whether a timer may emit a value although nothing is held back."""
        return self.repeats_by_clock

    @property
    def sets_timers(self) -> bool:
        """Whether entries without a window have timers."""
        return self.holds or self.expires or self.repeats_by_clock or self.spaces_emissions

    @property
    def late_after_ms(self) -> int | None:
        """The distance behind its partition's time at which a record is late; None: the window decides."""
        return None

    def may_be_late(self, entry: Entry) -> bool:
        """Return whether `late_after_ms` applies to a record of the entry as it is before it."""
        return True

    def compare(self, values: Values) -> Sameness | None:
        """Return the comparison of two outputs of these values; None if nothing is compared.

        Args:
            values: The values of one Arrow batch.

        Raises UserFunctionFailed if the comparison is a function that does not exist.
        """
        return None

    def marker(self, values: Values) -> Marker:
        """Return the function that makes the mark of an emission, for a strategy that `marks`.

        By default a mark only says that something was emitted.

        Args:
            values: The values of one Arrow batch.
        """
        return lambda output, timestamp: "seen"

    def repeats(self, last: str, now: str) -> bool:
        """Return whether an output repeats the last one, by their marks or hashes.

        Args:
            last: The mark in state.
            now: The mark of the output at hand.
        """
        return last == now

    def described(self, remembered: Any) -> Mapping[str, Any]:
        """Return for people what is stored of the last emission."""
        return {"emitted": remembered}

    def on_record(self, entry: Entry, now: Any, timestamp: int, same: Sameness | None) -> str | None:
        """Return the reason why a record triggers an emission of the entry's value, or None.

        `now` is the value, None for a deletion; `entry.emitted` is what was emitted last. For a strategy that
        holds values back, `entry` already contains the record.

        Args:
            timestamp: The timestamp that an emission would have, in epoch ms.
            same: The comparison that `compare` returned; None if nothing is compared.
        """
        return None

    def ending(self, stage: Stage, values: Values, rows: pa.RecordBatch) -> Ending | None:
        """Return the test of records that end the wait of their entry by a condition; None: none does."""
        return None

    def ends_with(self, values: Values) -> EndingValue | None:
        """Return the test of emissions after which nothing is left of their entry but its position; None:
        none is.

        Args:
            values: The values of one Arrow batch.
        """
        return None

    def overflows(self, entries: Sequence[Entry], event_bytes: int | None = None) -> bool:
        """Return whether the values of a key's entries do not fit into one text together, or not with one
        more event of `event_bytes`.

        Args:
            entries: One entry, or the sessions that become one.
            event_bytes: The bytes of one more event; None: no event comes.
        """
        return False

    @property
    def full_at(self) -> int | None:
        """The number of held-back records that fills a buffer; None: any number fits."""
        return None

    def starts_at(self, timestamp: Time, now: Time) -> Time:
        """Return the time from which values wait, by the first record's timestamp and its partition's time
        with it.

        Args:
            timestamp: The first record's own timestamp.
            now: The time of its partition with it.
        """
        return timestamp

    def due_since(self, since: Time) -> Time:
        """Return when values that wait from `since` are emitted by the timer.

        Args:
            since: What `starts_at` has returned, one time or an array of them.
        """
        return since * 0 + NEVER  # an array for an array

    def due(self, entry: Entry) -> int:
        """Return the time at which the entry's timer fires as things are; NEVER if it has none.

        Args:
            entry: The entry as it is now; its window may end earlier than its strategy waits.
        """
        return entry.close

    def on_time(self, entry: Entry, at: int) -> str | None:
        """Return the reason for an emission when the timer fires; None if only the entry's window is over.

        Args:
            at: When the timer was due, in epoch ms: not when the batch runs.
        """
        return None

    @property
    def ignores_repeats(self) -> bool:
        """Whether a `latest` record without a window that repeats the record before it changes nothing."""
        return False

    # on whole columns

    def decides_latest(self, value: pa.StructType) -> bool:
        """Return whether `emits_latest` decides records with these columns, and cannot fail.

        Args:
            value: The type of the records' columns.
        """
        return False

    def emits_latest(
        self, now: pa.StructArray, has_last: pa.BooleanArray, start: pa.BooleanArray
    ) -> pa.BooleanArray:
        """Return True where a candidate of `reduce: latest` is emitted.

        Args:
            now: The candidates' values; null is a deletion, and a state row has what it emitted last.
            has_last: Whether the candidate before it, of the same key, has a value.
            start: Whether it is the first row of its key.
        """
        raise NotImplementedError

    @property
    def stores_times(self) -> bool:
        """Whether the state rows of `emits_latest` have the timestamp of the last emission."""
        return False

    def decides_plain(self, stage: Stage, value: pa.StructType) -> bool:
        """Return whether `decide` decides the plain keys of a stage, for records with these columns.

        Args:
            stage: A stage with this strategy.
            value: The type of the records' columns.
        """
        return False

    def special(self, stage: Stage, keys: Keys) -> Iterable[Mask]:
        """Yield masks of the rows whose keys are not plain: they go record by record.

        Args:
            keys: All keys of the rows, each with its state.
        """
        raise NotImplementedError

    def decide(self, stage: Stage, schema: pa.Schema, keys: Keys, counts: Counts) -> Iterator[pa.RecordBatch]:
        """Yield emissions and state of plain keys, sorted by hash.

        Args:
            schema: The kernel's output schema.
            keys: Plain keys only.
            counts: Gets what became of the records.

        Raises BufferFull if a buffer exceeds its bound and may not emit early.
        """
        raise NotImplementedError

    # for the grammar

    def require_fit(self, window: Window | None, is_windowed: bool | None, collects: bool | None) -> None:
        """Check that the strategy goes with its stage. Raises BadOption.

        Args:
            window: The stage's window; None if it has none, or one with mistakes.
            is_windowed: Whether it has a window; None if that is unknown because of mistakes.
            collects: Whether its `reduce` is `collect`; None if that is unknown.
        """

    def over(self, emitted: tuple[str, ...]) -> Emit:
        """Return the strategy in a stage that emits these columns. Raises BadOption."""
        return self

    def with_envelope(self, envelope: Envelope | None) -> Emit:
        """Return the strategy for messages that also have these columns; None: no columns."""
        return self

    def retyped(self, retype: Retype) -> Emit:
        """Return the strategy with its condition typed for the actual columns.

        Args:
            retype: Returns a condition with the types of columns.
        """
        return self

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns that are compared."""
        return ()

    @property
    def compares_exactly(self) -> bool:
        """Whether it compares each column by itself, as `equality.any_differs` does."""
        return False

    @property
    def functions(self) -> Mapping[str, str | None]:
        """The user's functions that it calls -> the digest of their source; None before they are planned."""
        return {}

    def with_digests(self) -> Emit:
        """Return the strategy with the present digests of its functions.

        Raises UserFunctionFailed if one cannot be imported.
        """
        return self

    def emits_whole_values(self, emitted: tuple[str, ...]) -> bool:
        """Return whether each emission has the last value of all columns, so that the next record can refer
        to it.

        Args:
            emitted: The columns that the stage emits.
        """
        return False

    def longest_hold_ms(self, window: Window | None) -> int:
        """Return the longest time from a record that is not late to its emission; 0: at once.

        Args:
            window: The stage's window; None without one.
        """
        return 0

    def state_changes(self, after: Any) -> Iterator[StateChange]:
        """Yield the changed options that state does not survive; `after` is of the same class."""
        yield from ()
