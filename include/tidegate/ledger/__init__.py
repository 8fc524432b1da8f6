"""Plans, heads, leases, progress and metrics, in a SQL database."""

from tidegate.ledger.ledger import LEASE_SECONDS, LeasedLedger, Ledger
from tidegate.ledger.records import Attempt, Head, Lease, OffsetRange, Offsets, Plan, Run, Stream

__all__ = [
    "LEASE_SECONDS",
    "Attempt",
    "Head",
    "Lease",
    "LeasedLedger",
    "Ledger",
    "OffsetRange",
    "Offsets",
    "Plan",
    "Run",
    "Stream",
]
