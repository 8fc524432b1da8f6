"""`tidegate run`: all five steps in one process."""

from __future__ import annotations

import subprocess
import sys

_PRELOADS = """\
import sys, threading
from tidegate.protocol.run import _preloading_quality
assert _preloading_quality(lambda records: f"session of {records}")(3) == "session of 3"
for thread in threading.enumerate():
    if thread.name == "preload quality":
        thread.join()
assert "great_expectations" in sys.modules
"""


def test_great_expectations_is_imported_while_spark_is_at_work() -> None:
    subprocess.run([sys.executable, "-c", _PRELOADS], check=True, timeout=300)
