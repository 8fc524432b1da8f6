"""Code that only reads and prints nothing: the state of streams, what they sent, how a batch went, what is
wrong.
"""

from tidegate.inspect.bisect import Bisection, first_broken, first_failing
from tidegate.inspect.catalog import CatalogEntry, catalog_entries
from tidegate.inspect.check import Checked, Checker, committed_seqs, kept_states, requested_checks
from tidegate.inspect.conditions import Tried, stream_condition, troubled_streams
from tidegate.inspect.lag import Lags
from tidegate.inspect.learn import Learned, learn_suite, write_suite
from tidegate.inspect.lineage import Lineage, SinkWritten, TopicRead, batch_lineage
from tidegate.inspect.overview import (
    StreamDetails,
    StreamOverview,
    condition_metric,
    details,
    overviews,
    stage_metrics,
    standing_metrics,
)
from tidegate.inspect.read import read_emissions, read_quarantine, read_state
from tidegate.inspect.sinks import check_sinks, sink_warnings
from tidegate.inspect.verify import damaged_files
from tidegate.ledger.report import BatchReport, HistoryEntry, batch_history, batch_report, lag

__all__ = [
    "BatchReport",
    "Bisection",
    "Checked",
    "Learned",
    "learn_suite",
    "write_suite",
    "Checker",
    "committed_seqs",
    "first_broken",
    "first_failing",
    "kept_states",
    "requested_checks",
    "CatalogEntry",
    "HistoryEntry",
    "Lags",
    "Lineage",
    "SinkWritten",
    "StreamDetails",
    "StreamOverview",
    "TopicRead",
    "batch_history",
    "batch_lineage",
    "batch_report",
    "catalog_entries",
    "check_sinks",
    "damaged_files",
    "details",
    "lag",
    "overviews",
    "read_emissions",
    "read_quarantine",
    "read_state",
    "sink_warnings",
    "stage_metrics",
    "standing_metrics",
    "stream_condition",
    "Tried",
    "troubled_streams",
    "condition_metric",
]
