"""What a stage asks of an output before it goes out: does it pass `where`, is it the same as the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidegate.core.condition.compiler import KEY
from tidegate.core.emit import Change, Sameness
from tidegate.core.entry import NEVER, Entry
from tidegate.core.equivalence import digest
from tidegate.core.reduce import Values
from tidegate.core.stage import Stage


class Gate:
    """A stage's conditions, bound to the values of one Arrow batch. `hashed`: it remembers hashes."""

    def __init__(self, stage: Stage, values: Values, output: pa.StructType) -> None:
        change = stage.emit if isinstance(stage.emit, Change) else None
        self.hashed = stage.remembers_hashes
        self._digest: Callable[[Any, int], str] | None = None
        if self.hashed:
            self._digest = _seen if change is None else digest(change.equivalence, values)
        self.same: Sameness | None = None
        if change is not None:
            self.same = self._same_hash if change.hashed else change.equivalence.bind(values)
        self._where = stage.where
        self._values = values
        self._names = [field.name for field in output]
        self._fields: list[tuple[str, Callable[[Any], Any]]] = []
        if stage.where is not None:
            self._fields = self._readers()

    def _readers(self) -> list[tuple[str, Callable[[Any], Any]]]:
        return [(name, self._values.field(name)) for name in self._names]

    def passes(self, entry: Entry, output: Any) -> bool:
        """Whether `where` is true of an output, and of its entry's key and window; null is not true.

        Deletions always pass: consumers have what they take back. Raises ConditionFailed.
        """
        if self._where is None or output is None:
            return True
        row = {name: read(output) for name, read in self._fields}
        row[KEY] = entry.key
        if entry.window is not None:
            row["window_start"], row["window_end"] = entry.window
        return self._where.evaluate(row) is True

    def described(self, entry: Entry) -> dict[str, Any]:
        """An entry's state for people: its window, what it last emitted, how many records it holds back, and
        when its timer is due (epoch ms); only what there is.
        """
        emitted = entry.emitted
        if emitted is not None and not self.hashed:
            emitted = {name: read(emitted) for name, read in self._readers()}
        description = {"window": entry.window, "emitted": emitted, "held": entry.pending or None}
        if entry.due != NEVER:
            description["due"] = entry.due
        return {name: value for name, value in description.items() if value is not None}

    def remembered(self, output: Any, timestamp: int) -> Any:
        """What is kept of an output that went out."""
        return output if self._digest is None or output is None else self._digest(output, timestamp)

    def _same_hash(self, last: Any, now: Any, last_ms: int, now_ms: int) -> bool:
        assert self._digest is not None
        return bool(last == self._digest(now, now_ms))


def _seen(output: Any, timestamp: int) -> str:
    """For a strategy that only remembers that something went out."""
    return "seen"
