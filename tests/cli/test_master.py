"""A command computes on the Spark that is chosen, or that `tidegate up` has started in its home."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.cli.master import spark_master
from tidegate.settings import OWN_SPARK, Settings
from tidegate.spark_token import announce, withdraw


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"sc://localhost:{listening.getsockname()[1]}"


def settings(home: Path, **environment: str) -> Settings:
    return Settings.from_environment({"TIDEGATE_HOME": str(home), **environment})


def test_server_of_the_same_home_is_found(
    tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(tmp_path, server)
    assert spark_master(settings(tmp_path)) == server
    assert f"Spark is the server of `tidegate up`, {server}" in capsys.readouterr().err
    assert spark_master(settings(tmp_path / "other")) == OWN_SPARK


def test_chosen_master_comes_first(tmp_path: Path, server: str) -> None:
    announce(tmp_path, server)
    assert spark_master(settings(tmp_path, TIDEGATE_SPARK_MASTER="local[2]")) == "local[2]"


def test_server_that_has_ended_is_not_used(tmp_path: Path, server: str) -> None:
    announce(tmp_path, server)
    withdraw(tmp_path)
    assert spark_master(settings(tmp_path)) == OWN_SPARK


def test_killed_server_is_not_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        announce(tmp_path, f"sc://localhost:{listening.getsockname()[1]}")
    assert spark_master(settings(tmp_path)) == OWN_SPARK
