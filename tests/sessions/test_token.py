"""A Spark Connect server that tidegate starts lets in its user alone, by a token in a private file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tidegate.spark_token import read_token, remove_token, write_token
from tidegate_dev.spark_server import SparkServer

CLIENT = """
import sys
from tidegate.spark.connect import connect
from tidegate.errors import TidegateError

try:
    print(connect(sys.argv[1]).range(3).count())
except TidegateError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    with SparkServer(tmp_path_factory.mktemp("spark"), conf={"spark.master": "local[1]"}) as running:
        yield running


def client(server: SparkServer, **environment: str) -> str:
    """Return the output of a process that asks the server to count."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, server.url],
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.spark
def test_process_of_the_same_user_finds_the_token(server: SparkServer) -> None:
    assert client(server) == "3"


@pytest.mark.spark
def test_without_the_token_nobody_is_let_in(server: SparkServer, tmp_path: Path) -> None:
    refused = client(server, HOME=str(tmp_path))  # as of another user, who cannot read the file
    assert refused.startswith(f"SetupFailed The Spark Connect server at localhost:{server.port} does not let")
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" in refused
    wrong = client(server, HOME=str(tmp_path), SPARK_CONNECT_AUTHENTICATE_TOKEN="wrong")
    assert wrong.startswith("SetupFailed")


@pytest.mark.spark
def test_the_variable_of_spark_lets_in_as_well(server: SparkServer, tmp_path: Path) -> None:
    token = read_token(server.port)
    assert token is not None
    assert client(server, HOME=str(tmp_path), SPARK_CONNECT_AUTHENTICATE_TOKEN=token) == "3"


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_token_is_in_no_argument_or_log(server: SparkServer) -> None:
    token = read_token(server.port)
    assert token is not None
    assert client(server) == "3"
    arguments = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in server.processes())
    assert b"SparkConnectServer" in arguments
    log = server._home / "logs" / "spark.log"
    assert token.encode() not in arguments + log.read_bytes()


def test_token_file_is_private_and_removed_with_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_token(15002, "first")
    write_token(15002, "second")
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (read_token(15002), read_token(15003)) == ("second", None)
    remove_token(15002)
    assert read_token(15002) is None
