"""Imports what every task needs, in the process that Airflow forks its tasks from.

Name this module in Airflow's setting `[scheduler] mp_forkserver_preload`: then tasks inherit the imports.
A process that works for itself does not need it.
"""

from __future__ import annotations

import gc

# Airflow's part of a task, which imports nothing of tidegate.
import tidegate_airflow.factory
import tidegate_airflow.plugin  # noqa: F401
from tidegate.model.compiled import parts
from tidegate.model.pipeline import Written

# Pydantic builds the validators of the file, and tidegate the table of classes in plans, at their first use.
Written.model_rebuild()
parts()

# With Great Expectations, imports leave half a million objects, and each full collection in a task would take
# a third of a second. Garbage collection does not look at frozen objects.
gc.freeze()
