"""The kernel's semantics: what is emitted and what is remembered. Pure; standard library, numpy and pyarrow
only.

`decide` is the one kernel. Spark brings it rows sorted by key and position; tests call it directly.
"""

from tidegate.expressions import Condition
from tidegate.kernel.aggregates import Aggregate, Aggregates
from tidegate.kernel.aggregates.formula import Formula
from tidegate.kernel.bounded import Bound
from tidegate.kernel.counts import Counts, metrics, running_totals
from tidegate.kernel.decision import PriorState, decide, live_rows_suffice, order
from tidegate.kernel.equivalence import Bytes, Equivalence, Exact, PythonEqual, SqlEqual
from tidegate.kernel.gate import RowExpectation
from tidegate.kernel.ordering import ranked
from tidegate.kernel.reduce import Reduce
from tidegate.kernel.reduce.collect import Collect
from tidegate.kernel.reduce.latest import Latest
from tidegate.kernel.rows import (
    ADDED,
    BY_KEY,
    COUNTS,
    DELETED,
    EMISSION,
    FUTURE_MS,
    LATE,
    MOVED,
    QUARANTINED,
    RANK,
    RECORD,
    RECORDED,
    REFUSED,
    REMOVED,
    REPLACED,
    STATE,
    TRACE,
    input_schema,
    output_schema,
)
from tidegate.kernel.stage import Batch, Stage, groups
from tidegate.kernel.strategies import STRATEGIES
from tidegate.kernel.strategies.change import Change
from tidegate.kernel.strategies.in_sequence import InSequence
from tidegate.kernel.strategies.interval import Interval
from tidegate.kernel.strategies.join import Join
from tidegate.kernel.strategies.last_record import LastRecord
from tidegate.kernel.strategies.once import Once
from tidegate.kernel.strategies.quiet import Quiet
from tidegate.kernel.strategies.threshold import Envelope, KeyColumn, Threshold
from tidegate.kernel.strategies.time_limit import TimeLimit
from tidegate.kernel.strategies.update import Update
from tidegate.kernel.strategies.window_close import FinalBound, WindowClose
from tidegate.kernel.strategy import Clock, Emit
from tidegate.kernel.ttl import TimeToLive
from tidegate.kernel.unchanged import Unchanged
from tidegate.kernel.unusable import late_emissions, without_removed
from tidegate.kernel.windows import Hopping, Session, Sliding, Tumbling, Window
from tidegate.kernel.within import Amount, Within

__all__ = [
    "BY_KEY", "COUNTS", "EMISSION", "FUTURE_MS", "LATE", "QUARANTINED", "RANK", "RECORD", "RECORDED",
    "REFUSED", "REMOVED", "ADDED", "DELETED", "MOVED", "REPLACED", "STATE", "TRACE", "STRATEGIES",
    "Aggregate", "Aggregates", "Formula", "Amount", "Batch", "Bound", "Bytes", "Change", "Clock",
    "Collect", "Condition", "Counts", "Emit", "Envelope", "Equivalence", "Exact", "FinalBound", "Hopping",
    "InSequence", "Interval", "Join", "LastRecord", "KeyColumn", "Latest", "Once", "PriorState",
    "PythonEqual", "Quiet", "Reduce", "RowExpectation", "Session", "Sliding", "SqlEqual", "Stage",
    "Threshold", "TimeLimit", "TimeToLive", "Tumbling", "Unchanged", "Update", "Window", "WindowClose",
    "Within", "decide", "groups", "input_schema", "late_emissions", "live_rows_suffice", "metrics",
    "order", "output_schema", "ranked", "running_totals", "without_removed",
]  # fmt: skip
