"""The tests of an output before it is emitted: `where`, expectations, and whether it equals the last
emission.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tidegate.errors import ConditionFailed
from tidegate.expressions.rows import KEY
from tidegate.expressions.values import Unfit
from tidegate.kernel.entry import NEVER, Entry
from tidegate.kernel.expectation import refusal
from tidegate.kernel.stage import Stage
from tidegate.kernel.strategy import Marker, Sameness
from tidegate.kernel.values import Values


class Gate:
    """A stage's conditions, bound to the values of one Arrow batch. `hashed`: the stage stores hashes.

    Args:
        values: The values to which the stage's reduce is bound.
        output: The type of emissions.
    """

    def __init__(self, stage: Stage, values: Values, output: pa.StructType) -> None:
        self.hashed = stage.remembers_hashes
        self._emit = stage.emit
        self._digest: Marker | None = None
        self.same: Sameness | None = None
        if self.hashed:
            self._digest = stage.emit.marker(values)
            self.same = self._repeats
        else:
            self.same = stage.emit.compare(values)
        self._where = stage.where
        self._expectations = stage.expectations
        self._values = values
        self._names = [field.name for field in output]
        self._fields: list[tuple[str, Callable[[Any], Any]]] = []
        if stage.where is not None:
            self._fields = self._readers(self._names)
        self._expected: list[tuple[str, Callable[[Any], Any]]] = []
        if stage.expectations:
            # only these columns: reading one makes a Python object per value
            expected = {name for expectation in stage.expectations for name in expectation.columns}
            self._expected = self._readers([name for name in self._names if name in expected])

    def _readers(self, names: Sequence[str]) -> list[tuple[str, Callable[[Any], Any]]]:
        return [(name, self._values.field(name)) for name in names]

    def passes(self, entry: Entry, output: Any) -> bool:
        """Return whether `where` is true of an output, and of its entry's key and window; null is not true.

        Deletions always pass: consumers have the values that they delete. Raises ConditionFailed if there is
        no result.

        Args:
            output: A reference of the reduce; None is a deletion.
        """
        if self._where is None or output is None:
            return True
        return self._where.evaluate(_row(self._fields, entry, output)) is True

    def refusal(self, entry: Entry, output: Any) -> str | None:
        """Return the labels of the expectations that an output breaks; None if it may be emitted, as
        deletions may.

        Raises ConditionFailed if the key cannot be read.
        """
        if not self._expectations or output is None:
            return None
        try:
            return refusal(self._expectations, _row(self._expected, entry, output))
        except Unfit as unfit:
            raise ConditionFailed(f"An expectation has no result: {unfit.what}", unfit.fix) from None

    def described(self, entry: Entry) -> dict[str, Any]:
        """Return an entry's state for people: its window, its last emission, the number of records that it
        holds back, and when its timer is due (epoch ms); without what it does not have.

        Example: an entry that waits gives `{"held": 2, "due": 1700000000000}`.
        """
        emitted = entry.emitted
        if emitted is not None and not self.hashed:
            emitted = {name: read(emitted) for name, read in self._readers(self._names)}
        last = {} if emitted is None else self._emit.described(emitted)
        description = {"window": entry.window, **last, "held": entry.pending or None}
        if entry.due != NEVER:
            description["due"] = entry.due
        return {name: value for name, value in description.items() if value is not None}

    def remembered(self, output: Any, timestamp: int) -> Any:
        """Return what is stored of an emitted output.

        Args:
            output: The emitted output; None is a deletion.
            timestamp: Its timestamp, in epoch ms.
        """
        return output if self._digest is None or output is None else self._digest(output, timestamp)

    def _repeats(self, last: Any, now: Any, last_ms: int, now_ms: int) -> bool:
        assert self._digest is not None
        return self._emit.repeats(last, self._digest(now, now_ms))


def _row(fields: Sequence[tuple[str, Callable[[Any], Any]]], entry: Entry, output: Any) -> dict[str, Any]:
    """Return the row for conditions and expectations: columns of an output, and its entry's key
    and window.
    """
    row = {name: read(output) for name, read in fields}
    row[KEY] = entry.key
    if entry.window is not None:
        row["window_start"], row["window_end"] = entry.window
    return row
