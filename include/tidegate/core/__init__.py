"""The kernel's semantics: what is emitted and what is remembered. Pure; standard library, numpy and pyarrow
only.

`decide` is the one kernel. Spark brings it rows sorted by key and position; tests call it directly.
"""

from tidegate.core.condition import Condition
from tidegate.core.counts import Counts, outgoing
from tidegate.core.envelope import Envelope, KeyColumn
from tidegate.core.equivalence import Amount, Bytes, Equivalence, Exact, PythonEqual, SqlEqual, Within
from tidegate.core.expectation import RowExpectation
from tidegate.core.gone import live_rows_suffice
from tidegate.core.kernel import decide, order
from tidegate.core.metrics import metrics, running_totals
from tidegate.core.ordering import ranked
from tidegate.core.prior_state import PriorState
from tidegate.core.reduce import Aggregate, Aggregates, Collect, Latest
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
from tidegate.core.stage import Batch, Stage, groups
from tidegate.core.strategies import STRATEGIES
from tidegate.core.strategies.change import Change
from tidegate.core.strategies.in_sequence import InSequence
from tidegate.core.strategies.interval import Interval
from tidegate.core.strategies.once import Once
from tidegate.core.strategies.threshold import Threshold
from tidegate.core.strategies.time_limit import TimeLimit
from tidegate.core.strategies.update import Update
from tidegate.core.strategies.window_close import FinalBound, WindowClose
from tidegate.core.strategy import Bound, Clock, Emit
from tidegate.core.unchanged import Unchanged
from tidegate.core.values import Reduce
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
    "STRATEGIES",
    "Aggregate",
    "Aggregates",
    "Amount",
    "Batch",
    "Bound",
    "Bytes",
    "Change",
    "Clock",
    "Collect",
    "Condition",
    "Counts",
    "Emit",
    "Envelope",
    "Equivalence",
    "Exact",
    "FinalBound",
    "Hopping",
    "InSequence",
    "Interval",
    "KeyColumn",
    "Latest",
    "Once",
    "PriorState",
    "PythonEqual",
    "Reduce",
    "RowExpectation",
    "Session",
    "SqlEqual",
    "Stage",
    "Threshold",
    "TimeLimit",
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
