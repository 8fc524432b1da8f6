"""The quality check beside the process that asks for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.quality.suite_for_tests import NEGATIVE, POSITIVE, audit_of
from tidegate.errors import QualityLost, SettingsInvalid
from tidegate.quality.beside import CheckBeside

pytestmark = pytest.mark.process

_STARTED = """\
import sys
from tidegate.quality.beside import CheckBeside
beside = CheckBeside()
beside.start()
print(beside._process.pid, flush=True)
sys.stdin.read()
"""


def test_separate_process_finds_the_same_results(tmp_path: Path) -> None:
    from tidegate.quality.gate import check

    with CheckBeside() as beside:
        for values in (POSITIVE, NEGATIVE):
            audit = audit_of(tmp_path, values)
            assert beside.check(audit) == check(audit)


def test_an_error_is_that_of_the_check(tmp_path: Path) -> None:
    audit = replace(audit_of(tmp_path, POSITIVE), modules=("no_such_module",))
    with (
        CheckBeside() as beside,
        pytest.raises(SettingsInvalid, match="no_such_module of `quality` cannot be"),
    ):
        beside.check(audit)


def test_lost_check_process_is_transient(tmp_path: Path) -> None:
    with CheckBeside() as beside:
        beside.start()
        assert beside._process is not None
        beside._process.kill()
        with pytest.raises(QualityLost, match=r"ended with exit code -9\. Run again"):
            beside.check(audit_of(tmp_path, POSITIVE))


def test_check_process_ends_with_its_killed_parent() -> None:
    command = [sys.executable, "-c", _STARTED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        beside = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
        beside.wait(timeout=600)
        assert not beside.is_running()


def test_check_process_leaves_ctrl_c_to_its_parent(tmp_path: Path) -> None:
    audit = audit_of(tmp_path, POSITIVE)
    with CheckBeside() as beside:
        beside.check(audit)
        assert beside._process is not None
        os.kill(beside._process.pid, signal.SIGINT)
        assert beside.check(audit).passed


def test_asking_process_imports_no_great_expectations() -> None:
    asked = "import sys, tidegate.quality; print(*({'great_expectations', 'pandas'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_check_process_ends_during_its_imports() -> None:
    with CheckBeside() as beside:
        beside.start()
        process = beside._process
    assert process is not None
    assert process.returncode == -signal.SIGKILL


def test_yielding_check_gives_the_same_verdict(tmp_path: Path) -> None:
    from tidegate.quality.gate import check

    audit = audit_of(tmp_path, POSITIVE)
    with CheckBeside() as beside:
        beside.start(yields=True)
        assert beside.check(audit) == check(audit)
        assert beside._process is not None
        assert psutil.Process(beside._process.pid).nice() > psutil.Process().nice()


def test_suite_in_memory_needs_no_spark_or_sql() -> None:
    asked = "import sys, tidegate.quality.gate; print(*({'pyspark', 'sqlalchemy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_great_expectations_leaves_spark_and_sql_importable() -> None:
    asked = "import tidegate.quality.gate, pyspark.sql, sqlalchemy.orm"
    subprocess.run([sys.executable, "-c", asked], check=True)


def test_the_process_that_evaluates_suites_imports_no_grammar() -> None:
    grammar = "{'tidegate.model.pipeline', 'sqlglot'}"
    program = f"import sys, tidegate.quality.gate; print(*{grammar} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
