"""The kernel's semantics: what is emitted and what is remembered. Pure; standard library, numpy and pyarrow
only.

`decide` is the one kernel. Spark brings it rows sorted by key and position; tests call it directly.
"""

from tidegate.core.condition import Condition
from tidegate.core.counts import Counts, outgoing
from tidegate.core.emit import (
    Change,
    Emit,
    InSequence,
    Interval,
    Once,
    Threshold,
    TimeLimit,
    Update,
    WindowClose,
)
from tidegate.core.envelope import Envelope, KeyColumn
from tidegate.core.equivalence import Equivalence, Exact, Function, Satisfies, Serialized, Tolerance, Within
from tidegate.core.expectation import RowExpectation
from tidegate.core.gone import live_rows_suffice
from tidegate.core.kernel import decide, order
from tidegate.core.metrics import metrics, running_totals
from tidegate.core.ordering import ranked
from tidegate.core.prior_state import PriorState
from tidegate.core.reduce import Aggregate, Aggregates, Collect, Latest, Reduce
from tidegate.core.rows import (
    BY_KEY,
    BY_PARTITION,
    COUNTS,
    EMISSION,
    FUTURE_MS,
    QUARANTINED,
    RANK,
    RECORD,
    REFUSED,
    STATE,
    TRACE,
    input_schema,
    output_schema,
)
from tidegate.core.stage import Batch, Bound, Stage, groups
from tidegate.core.unchanged import Unchanged
from tidegate.core.windows import Hopping, Session, Tumbling, Window

__all__ = [
    "BY_KEY",
    "BY_PARTITION",
    "COUNTS",
    "EMISSION",
    "FUTURE_MS",
    "QUARANTINED",
    "RANK",
    "RECORD",
    "REFUSED",
    "STATE",
    "TRACE",
    "Aggregate",
    "Aggregates",
    "Batch",
    "Bound",
    "Change",
    "Collect",
    "Condition",
    "Counts",
    "Emit",
    "Envelope",
    "Equivalence",
    "Exact",
    "Function",
    "Hopping",
    "InSequence",
    "Interval",
    "KeyColumn",
    "Latest",
    "Once",
    "PriorState",
    "Reduce",
    "RowExpectation",
    "Satisfies",
    "Serialized",
    "Session",
    "Stage",
    "Threshold",
    "TimeLimit",
    "Tolerance",
    "Tumbling",
    "Unchanged",
    "Update",
    "Window",
    "WindowClose",
    "Within",
    "decide",
    "groups",
    "input_schema",
    "live_rows_suffice",
    "metrics",
    "order",
    "outgoing",
    "output_schema",
    "ranked",
    "running_totals",
]
