"""A ledger that has committed every batch as the attempt of one name, for publishers without a ledger."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.errors import LedgerMismatch

RequireCommitted = Callable[[int, Callable[[str], bool]], None]
FIRST = "first"


def committed(attempt: str = FIRST) -> RequireCommitted:
    """Return `OpenSink.require_committed` with that ledger."""

    def require_committed(seq: int, is_of: Callable[[str], bool]) -> None:
        if not is_of(attempt):
            raise LedgerMismatch(f"batch {seq} is of another attempt")

    return require_committed
