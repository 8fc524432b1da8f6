"""What only looks, and prints nothing: what streams hold and sent, how a batch went; what is wrong."""

from tidegate.inspect.read import read_emissions, read_quarantine, read_state
from tidegate.inspect.sinks import check_sinks, sink_warnings
from tidegate.inspect.verify import damaged_files
from tidegate.ledger.report import BatchReport, batch_report, lag

__all__ = [
    "BatchReport",
    "batch_report",
    "check_sinks",
    "damaged_files",
    "lag",
    "read_emissions",
    "read_quarantine",
    "read_state",
    "sink_warnings",
]
