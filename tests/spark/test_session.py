"""Sessions of servers: the error of a session that does not exist, and settings that are changed for a
while.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import two_sessions
from tidegate.errors import SettingsInvalid, SparkLost
from tidegate.spark import session as session_module
from tidegate.spark.driver import DriverJvm, DriverSettings
from tidegate.spark.session import OwnSession, changed, open_session
from tidegate_dev.processes import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_unanswering_server_is_transient_without_its_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.spark.connect._RESTART_SECONDS", 0)
    port = free_port()
    with pytest.raises(SparkLost, match=f"answers at 127.0.0.1:{port}") as caught:
        open_session(f"sc://127.0.0.1:{port}/;token=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "master",
    ["lokal[2]", "local[x]", "spark:/host:7077", "spark://", "spark://host:port", "k8s", "sc:/host", ""],
)
def test_invalid_master_is_refused_before_java_starts(master: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"is no master of Spark.*local\[\*\].*spark://host:7077"):
        open_session(master)


def test_a_yarn_master_needs_yarns_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsInvalid, match="HADOOP_CONF_DIR"):
        open_session("yarn")


def test_unanswering_master_is_transient() -> None:
    port = free_port()
    with pytest.raises(
        SparkLost, match=rf"127.0.0.1:{port}: .*refused.*no.such.host.invalid: .*nothing is lost"
    ):
        open_session(f"spark://127.0.0.1:{port},no.such.host.invalid")
    with pytest.raises(SparkLost, match="Port out of range"):
        open_session("spark://127.0.0.1:99999")


@pytest.mark.parametrize(("records", "mode"), [(200_000, "NO_CODEGEN"), (200_001, None), (None, None)])
def test_small_batch_generates_no_java_code(records: int | None, mode: str | None) -> None:
    class UnstartedJvm(DriverJvm):
        def start(self, settings: DriverSettings) -> None: ...

    settings = session_module._settings("local[1]", None, records, UnstartedJvm())
    assert settings.get("spark.sql.codegen.factoryMode") == mode


@pytest.mark.spark
def test_expressions_of_spark_are_always_compiled(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session_module.compile_expressions(spark)
    assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"


@pytest.mark.spark
def test_workers_end_with_the_session_of_their_batch() -> None:
    program = [sys.executable, two_sessions.__file__]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert first["worker"] != second["worker"]
    assert not first["lives on"]
    assert not second["lives on"]


@pytest.mark.parametrize(("error", "is_shown"), [(KeyboardInterrupt, False), (OSError, True)])
def test_interrupted_call_is_not_logged(error: type[BaseException], is_shown: bool) -> None:
    exc_info = (error, error(), None)
    record = logging.LogRecord("root", logging.ERROR, "java_gateway.py", 1, "while sending", (), exc_info)
    assert session_module.is_no_interrupt(record) is is_shown


@pytest.mark.parametrize("exc_info", [None, False])
def test_message_without_an_error_is_logged(exc_info: Any) -> None:
    record = logging.LogRecord("root", logging.ERROR, "module.py", 1, "a message", (), exc_info)
    assert session_module.is_no_interrupt(record)


@pytest.mark.spark
def test_existing_session_survives_a_batch(spark: SparkSession) -> None:
    with OwnSession("local[2]", None) as session:
        assert session.open(1) is spark
        session.end()
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_temporary_settings_are_restored_after_an_error(spark: SparkSession) -> None:
    names = ("spark.sql.shuffle.partitions", "spark.tidegate.nobody_knows_it")
    before = [spark.conf.get(name, None) for name in names]
    inside = []
    with suppress(ZeroDivisionError), changed(spark, dict.fromkeys(names, "3")):
        inside = [spark.conf.get(name) for name in names]
        raise ZeroDivisionError
    assert inside == ["3", "3"]
    assert [spark.conf.get(name, None) for name in names] == before
    assert before[1] is None
