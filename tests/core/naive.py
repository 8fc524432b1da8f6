"""The semantics again, record by record: slow, plain, and sharing nothing with the kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Value = dict[str, Any] | None


@dataclass(frozen=True)
class Record:
    """An input record of one key; `value` None is a tombstone."""

    key: str
    value: Value
    partition: int
    offset: int
    timestamp: int
    passes: bool = True


@dataclass
class KeyState:
    """What is known of a key."""

    value: Value = None
    emitted: Value = None
    position: tuple[int, int] | None = None


@dataclass
class Model:
    """`latest` with `update` or `change`."""

    on: str
    compared: tuple[str, ...] = ("a", "b")
    states: dict[str, KeyState] = field(default_factory=dict)
    emissions: dict[str, list[Value]] = field(default_factory=dict)
    suppressed: int = 0
    deduplicated: int = 0

    def apply(self, batch: list[Record]) -> None:
        """One batch: each key's records in their order, one at a time."""
        by_key: dict[str, list[Record]] = {}
        for record in batch:
            by_key.setdefault(record.key, []).append(record)
        for records in by_key.values():
            several = len({record.partition for record in records}) > 1
            before = self.states.get(records[0].key, KeyState()).position
            for record in sorted(records, key=merged if several else positioned):
                if before and before[0] == record.partition and record.offset <= before[1]:
                    self.deduplicated += 1
                else:
                    self._take(record)

    def _take(self, record: Record) -> None:
        state = self.states.setdefault(record.key, KeyState())
        emits = self._emits(record, state)
        if emits:
            self.emissions.setdefault(record.key, []).append(record.value)
            state.emitted = record.value
        elif record.value is not None and record.passes:
            self.suppressed += 1
        if emits or self.on == "update":
            state.value = record.value
            state.position = (record.partition, record.offset)

    def _emits(self, record: Record, state: KeyState) -> bool:
        if record.value is None:
            return state.emitted is not None
        if not record.passes:
            return False
        return self.on == "update" or not same(record.value, state.emitted, self.compared)


def positioned(record: Record) -> Any:
    return (record.partition, record.offset)


def merged(record: Record) -> Any:
    return (record.timestamp, record.partition, record.offset)


def same(left: Value, right: Value, names: tuple[str, ...]) -> bool:
    """Null-safe, NaN equal to NaN."""
    if left is None or right is None:
        return left is right
    return all(_same_scalar(left[name], right[name]) for name in names)


def _same_scalar(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
        return True
    return bool(left == right)
