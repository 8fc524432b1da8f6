"""Adapt the size of transactions to the speed of the broker."""

from __future__ import annotations

from tidegate.kafka.messages import LEAST_CHUNK_BYTES

_FIRST_BYTES = 1024 * 1024
_QUICK, _SLOW = 0.125, 0.5
"""Parts of the time in which a transaction must be delivered: faster is quick, slower is slow."""


class Pace:
    """The size of the next transaction, in bytes.

    It begins small, doubles while the broker is quick, and shrinks when it is slow. A fixed size would be too
    large for some produce quota or network.

    Args:
        most_bytes: the largest size that it ever has.
        delivery_seconds: the time in which a transaction must be delivered.
    """

    def __init__(self, most_bytes: int, delivery_seconds: float) -> None:
        self._most = most_bytes
        self._delivery_seconds = delivery_seconds
        self._bytes = min(_FIRST_BYTES, most_bytes)

    @property
    def bytes(self) -> int:
        """The largest number of bytes of the next transaction."""
        return self._bytes

    def delivered(self, seconds: float) -> None:
        """Adapt to a transaction that was delivered within `seconds`."""
        if seconds < _QUICK * self._delivery_seconds:
            self._bytes = min(2 * self._bytes, self._most)
        elif seconds > _SLOW * self._delivery_seconds:
            self._bytes = max(self._bytes // 2, LEAST_CHUNK_BYTES)

    def timed_out(self) -> bool:
        """Adapt to a transaction that was not delivered in time. Return whether a smaller size is left to
        try.
        """
        # Each try that is too large costs a whole timeout, so the size falls faster than it rises.
        before, self._bytes = self._bytes, max(self._bytes // 4, LEAST_CHUNK_BYTES)
        return self._bytes < before
