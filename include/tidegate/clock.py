"""The clock of this machine. Ages in the ledger are by another one: that of its database."""

from __future__ import annotations

import time


def current_ms() -> int:
    """Return now in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
