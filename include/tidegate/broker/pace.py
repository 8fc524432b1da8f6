"""How much a transaction takes on: as much as the broker is quick enough for."""

from __future__ import annotations

from tidegate.broker.messages import LEAST_CHUNK_BYTES

_FIRST_BYTES = 1024 * 1024
_QUICK, _SLOW = 0.125, 0.5
"""Shares of the time in which a transaction has to be delivered."""


class Pace:
    """The bytes of the next transaction. They begin small, double while the broker is quick, and shrink where
    it is slow: a produce quota or a narrow line makes any fixed size too large.
    """

    def __init__(self, most_bytes: int, delivery_seconds: float) -> None:
        self._most = most_bytes
        self._delivery_seconds = delivery_seconds
        self._bytes = min(_FIRST_BYTES, most_bytes)

    @property
    def bytes(self) -> int:
        """How many the next transaction may have."""
        return self._bytes

    def delivered(self, seconds: float) -> None:
        """Learn from a transaction that was delivered."""
        if seconds < _QUICK * self._delivery_seconds:
            self._bytes = min(2 * self._bytes, self._most)
        elif seconds > _SLOW * self._delivery_seconds:
            self._bytes = max(self._bytes // 2, LEAST_CHUNK_BYTES)

    def timed_out(self) -> bool:
        """Learn from one that was not. Return whether a smaller one is left to try."""
        before, self._bytes = self._bytes, max(self._bytes // 4, LEAST_CHUNK_BYTES)
        return self._bytes < before
