"""Spark with the requested memory, and Spark that was killed, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.spark import small_heap

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    program = [sys.executable, small_heap.__file__]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_driver_has_the_requested_heap(answer: dict[str, Any]) -> None:
    assert answer["heap"] == 512 << 20


def test_killed_jvm_error_says_what_to_set(answer: dict[str, Any]) -> None:
    assert "TIDEGATE_SPARK_MEMORY" in (answer["lost"] or "")
