"""What is imported before the work, by a process or by the one that it is a fork of."""

from __future__ import annotations

import subprocess
import sys

from tidegate_dev.airflow import TASKS_IMPORT


def test_forked_garbage_collection_leaves_imports_alone() -> None:
    program = (
        "import os; import json, tidegate.frozen, gc\n"
        "if os.fork() == 0: os._exit(json in gc.get_objects())\n"
        "assert gc.get_freeze_count() > 1_000\n"
        "assert os.waitstatus_to_exitcode(os.wait()[1]) == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_it_is_the_last_that_tasks_inherit() -> None:
    assert TASKS_IMPORT[-1] == "tidegate.frozen"
