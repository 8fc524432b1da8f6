"""Plans, heads, leases, progress and metrics, in a SQL database."""

from tidegate.ledger.database import migrate_database
from tidegate.ledger.facts import (
    BatchFacts,
    Expired,
    Failure,
    GivenUp,
    KnownNames,
    QualityResult,
    Recovery,
    Resolution,
    SinkProgress,
    StreamStatus,
)
from tidegate.ledger.ledger import Ledger, lease_held
from tidegate.ledger.promotions import Charge, Promotion, Span
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import (
    Attempt,
    Clocks,
    Commit,
    CommittedBatch,
    Head,
    LastPlanned,
    Lease,
    ManifestRef,
    OffsetRange,
    Offsets,
    Plan,
    PlannedSpec,
    PlannedVersion,
    Run,
    Snapshot,
    Stream,
    Times,
)
from tidegate.ledger.series import MetricGroup
from tidegate.ledger.writer import LEASE_SECONDS, LeasedLedger

__all__ = [
    "LEASE_SECONDS",
    "Attempt",
    "BatchFacts",
    "Charge",
    "Commit",
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
    "MetricGroup",
    "OffsetRange",
    "Offsets",
    "Plan",
    "PlannedSpec",
    "PlannedVersion",
    "Promotion",
    "QualityResult",
    "Recovery",
    "Resolution",
    "Run",
    "SinkProgress",
    "Snapshot",
    "Span",
    "Stream",
    "StreamStatus",
    "Times",
    "lease_held",
    "migrate_database",
]
