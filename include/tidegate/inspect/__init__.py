"""Code that only reads and prints nothing: the state of streams, what they sent, how a batch went, what is
wrong.
"""

from tidegate.inspect.check import (
    Bisection,
    Checked,
    Checker,
    committed_seqs,
    first_broken,
    first_failing,
    kept_states,
    requested_checks,
)
from tidegate.inspect.emissions import Emissions, newest_emissions
from tidegate.inspect.examine import damaged_files, sink_errors, sink_warnings
from tidegate.inspect.graph import Graph, Node, NodeKind, pipeline_graph
from tidegate.inspect.learn import learn_suite, write_suite
from tidegate.inspect.lineage import Lineage, SinkWritten, TopicRead, batch_lineage
from tidegate.inspect.overview import (
    Lags,
    StreamDetails,
    StreamOverview,
    condition_metric,
    details,
    overviews,
    stage_metrics,
    standing_metrics,
)
from tidegate.inspect.read import read_emissions, read_state, stored_stages
from tidegate.inspect.streams import (
    CatalogEntry,
    catalog_entries,
    stream_condition,
    stream_conditions,
    troubled_streams,
)
from tidegate.ledger.report import BatchReport, HistoryEntry, batch_history, batch_report

__all__ = [
    "BatchReport",
    "Bisection",
    "Checked",
    "learn_suite",
    "write_suite",
    "Checker",
    "committed_seqs",
    "first_broken",
    "first_failing",
    "kept_states",
    "requested_checks",
    "CatalogEntry",
    "Emissions",
    "Graph",
    "HistoryEntry",
    "Lags",
    "Lineage",
    "Node",
    "NodeKind",
    "SinkWritten",
    "StreamDetails",
    "StreamOverview",
    "TopicRead",
    "batch_history",
    "batch_lineage",
    "batch_report",
    "catalog_entries",
    "damaged_files",
    "details",
    "overviews",
    "pipeline_graph",
    "read_emissions",
    "read_state",
    "newest_emissions",
    "stored_stages",
    "sink_errors",
    "sink_warnings",
    "stage_metrics",
    "standing_metrics",
    "stream_condition",
    "stream_conditions",
    "troubled_streams",
    "condition_metric",
]
