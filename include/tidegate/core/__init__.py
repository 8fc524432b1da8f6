"""The semantics: what goes out and what is remembered. Pure; standard library and pyarrow only.

`decide` is the one kernel. Spark brings it rows sorted by key and position; tests call it directly.
"""

from tidegate.core.emit import Change, Emit, Update
from tidegate.core.kernel import Stage, decide
from tidegate.core.rows import COUNTS, EMISSION, FUTURE_MS, QUARANTINED, RECORD, STATE, Counts, output_schema

__all__ = [
    "COUNTS",
    "EMISSION",
    "FUTURE_MS",
    "QUARANTINED",
    "RECORD",
    "STATE",
    "Change",
    "Counts",
    "Emit",
    "Stage",
    "Update",
    "decide",
    "output_schema",
]
