"""Plans, heads, leases, progress and metrics, in a SQL database."""

from tidegate.ledger.database import migrate_database
from tidegate.ledger.ledger import Ledger, lease_held
from tidegate.ledger.promotions import Charge, Promotion, Span
from tidegate.ledger.quality import QualityResult
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import (
    Attempt,
    BatchFacts,
    Clocks,
    CommittedBatch,
    Expired,
    Failure,
    GivenUp,
    Head,
    KnownNames,
    LastPlanned,
    Lease,
    ManifestRef,
    OffsetRange,
    Offsets,
    Plan,
    PlannedSpec,
    Recovery,
    Resolution,
    Run,
    Snapshot,
    Stream,
    StreamStatus,
    Times,
)
from tidegate.ledger.writer import LEASE_SECONDS, LeasedLedger

__all__ = [
    "LEASE_SECONDS",
    "Attempt",
    "BatchFacts",
    "Charge",
    "CommittedBatch",
    "Clocks",
    "Expired",
    "Failure",
    "GivenUp",
    "Head",
    "KnownNames",
    "LastPlanned",
    "Lease",
    "LeasedLedger",
    "Ledger",
    "LedgerReader",
    "ManifestRef",
    "OffsetRange",
    "Offsets",
    "Plan",
    "PlannedSpec",
    "Promotion",
    "QualityResult",
    "Recovery",
    "Resolution",
    "Run",
    "Snapshot",
    "Span",
    "Stream",
    "StreamStatus",
    "Times",
    "lease_held",
    "migrate_database",
]
