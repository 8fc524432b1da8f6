"""The detached stack of `make up` and `make down`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dev.test_processes import wait_for
from tidegate.errors import SetupFailed
from tidegate_dev.airflow_client import AirflowClient
from tidegate_dev.stack import down, environment, status, up


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("dags", "plugins"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def ended(module_home: Path) -> Iterator[None]:
    yield
    down(module_home)


def marked(module_home: Path) -> list[str]:
    """The processes that belong to the stack in `home`."""
    done = subprocess.run(["pgrep", "-f", str(module_home)], capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_down_without_a_stack_does_nothing(tmp_path: Path) -> None:
    assert status(tmp_path) is None
    assert not down(tmp_path)


def test_taken_port_is_named_by_its_setting(
    module_home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setenv("TIDEGATE_KAFKA_PORT", str(server.getsockname()[1]))
        with pytest.raises(SetupFailed, match=r"Port \d+ is taken.*TIDEGATE_KAFKA_PORT"):
            up(module_home, project)


def test_environment_has_all_that_spark_asks_for(module_home: Path, project: Path) -> None:
    env = environment(module_home, project, "127.0.0.1:1")
    assert env["TIDEGATE_HOME"] == str(module_home)
    assert json.loads(env["AIRFLOW_CONN_TIDEGATE_KAFKA"])["extra"] == {"bootstrap.servers": "127.0.0.1:1"}
    assert json.loads(env["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == "local[*]"
    assert (Path(env["JAVA_HOME"]) / "bin" / "java").exists()


def test_what_the_user_has_set_stays(
    module_home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LEDGER", "postgresql+psycopg://somewhere/ledger")
    assert (
        environment(module_home, project, "x:1")["TIDEGATE_LEDGER"] == "postgresql+psycopg://somewhere/ledger"
    )


@pytest.mark.broker
@pytest.mark.airflow
@pytest.mark.long
@pytest.mark.usefixtures("ended")
def test_stack_is_found_again_and_leaves_nothing(module_home: Path, project: Path) -> None:
    info, was_up = up(module_home, project)
    assert not was_up
    assert up(module_home, project) == (info, True)
    assert status(module_home) == info
    assert "dags" in AirflowClient(info.airflow_url, info.username, info.password).api("GET", "/dags")
    assert (module_home / "stack.json").stat().st_mode & 0o077 == 0
    os.kill(info.pid, signal.SIGKILL)
    wait_for(lambda: not marked(module_home))
    assert status(module_home) is None
    assert not down(module_home)
