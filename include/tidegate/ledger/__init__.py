"""Plans, heads, leases, progress and metrics, in a SQL database."""

from tidegate.ledger.ledger import Ledger, lease_held
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import (
    Attempt,
    Clocks,
    Failure,
    Head,
    KnownNames,
    Lease,
    ManifestRef,
    OffsetRange,
    Offsets,
    Plan,
    PlannedSpec,
    Run,
    Snapshot,
    Stream,
    Times,
)
from tidegate.ledger.writer import LEASE_SECONDS, LeasedLedger

__all__ = [
    "LEASE_SECONDS",
    "Attempt",
    "Clocks",
    "Failure",
    "Head",
    "KnownNames",
    "Lease",
    "LeasedLedger",
    "Ledger",
    "LedgerReader",
    "ManifestRef",
    "OffsetRange",
    "Offsets",
    "Plan",
    "PlannedSpec",
    "Run",
    "Snapshot",
    "Stream",
    "Times",
    "lease_held",
]
