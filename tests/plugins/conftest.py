"""Airflow puts `plugins/` on the path; so do these tests, in an Airflow home of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import gettempdir

# before the first import of airflow, which makes its home when it is imported
os.environ.setdefault("AIRFLOW_HOME", str(Path(gettempdir()) / f"tidegate-tests-airflow-{os.getuid()}"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins"))
