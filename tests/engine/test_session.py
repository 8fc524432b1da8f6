"""Sessions of servers: what is told of one that is not there, and settings that are changed for a while."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.engine import two_sessions
from tidegate.engine.session import OwnSession, changed, open_session
from tidegate.errors import SparkLost
from tidegate.local.processes import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_server_that_does_not_answer_is_a_transient_error_without_the_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.engine.connect._RESTART_SECONDS", 0)
    port = free_port()
    with pytest.raises(SparkLost, match=f"answers at 127.0.0.1:{port}") as caught:
        open_session(f"sc://127.0.0.1:{port}/;token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.spark
def test_workers_end_with_the_session_of_their_batch_and_another_one_can_follow() -> None:
    program = [sys.executable, two_sessions.__file__]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert first["worker"] != second["worker"]
    assert not first["lives on"]
    assert not second["lives on"]


@pytest.mark.spark
def test_a_session_that_was_there_before_a_batch_stays(spark: SparkSession) -> None:
    with OwnSession("local[2]", None) as session:
        assert session.open(1) is spark
        session.end()
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_settings_that_are_changed_for_a_while_are_as_before_also_after_an_error(spark: SparkSession) -> None:
    names = ("spark.sql.shuffle.partitions", "spark.tidegate.nobody_knows_it")
    before = [spark.conf.get(name, None) for name in names]
    inside = []
    with suppress(ZeroDivisionError), changed(spark, dict.fromkeys(names, "3")):
        inside = [spark.conf.get(name) for name in names]
        raise ZeroDivisionError
    assert inside == ["3", "3"]
    assert [spark.conf.get(name, None) for name in names] == before
    assert before[1] is None
