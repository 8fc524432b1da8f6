"""A stack knows its own Airflow from another one, and sees when a part of it has ended. A server plays it."""

from __future__ import annotations

import base64
import hmac
import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from tests.web import serving
from tidegate.errors import SetupFailed
from tidegate_dev.airflow import AirflowStack
from tidegate_dev.processes import Supervised
from tidegate_dev.stack import Stack, hold


class Answers(BaseHTTPRequestHandler):
    """Healthy, and whoever logs in with the password gets a token that is signed with the server's secret."""

    server: Any

    def do_GET(self) -> None:
        soon = (datetime.now(timezone.utc) + timedelta(minutes=1)).isoformat()
        names = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        health = {name: {"status": "healthy", f"latest_{name}_heartbeat": soon} for name in names}
        for name in self.server.sick:
            health[name]["status"] = "unhealthy"
        self.answer(200, health)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["password"] != self.server.password:
            self.answer(401, {"detail": "Invalid credentials"})
            return
        signature = hmac.digest(self.server.secret.encode(), b"head.claims", "sha512")
        signed = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
        self.answer(201, {"access_token": f"head.claims.{signed}"})

    def answer(self, status: int, content: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as server:
        made_up = cast(Any, server)
        made_up.password, made_up.secret, made_up.sick = "word", "of another start", []
        yield made_up


@pytest.fixture
def airflow(tmp_path: Path, server: Any) -> Iterator[AirflowStack]:
    """A stack whose own API server has not got its port."""
    stack = AirflowStack(tmp_path, tmp_path)
    (tmp_path / "airflow").mkdir()
    password = tmp_path / "airflow" / "simple_auth_manager_passwords.json.generated"
    password.write_text(json.dumps({"admin": "word"}))
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    stack.url = f"http://127.0.0.1:{server.server_port}"
    with Supervised("Airflow", command, stack.log, {}) as process:
        stack._process = process
        yield stack


@pytest.mark.parametrize("password", ["word", "another word"], ids=["a copied home", "another home"])
def test_airflow_of_another_start_is_not_ours(airflow: AirflowStack, server: Any, password: str) -> None:
    server.password = password
    with pytest.raises(SetupFailed, match=r"Another Airflow answers at http.*TIDEGATE_AIRFLOW_PORT"):
        airflow.wait_ready(10)
    assert not airflow.running


def test_the_own_airflow_is_ready(airflow: AirflowStack, server: Any) -> None:
    server.secret = airflow._secret
    airflow.wait_ready(10)
    assert (airflow.running, airflow.password) == (True, "word")


class Stopping:
    """A stack that runs for so many looks that a sick component would have been noticed."""

    spark, looks = None, 0

    def __init__(self, airflow: AirflowStack) -> None:
        self.airflow = airflow

    @property
    def running(self) -> bool:
        self.looks += 1
        return self.looks < 400


def test_stack_ends_with_a_dead_airflow_component(airflow: AirflowStack, server: Any) -> None:
    server.sick = ["scheduler"]
    with pytest.raises(SetupFailed, match=r"Airflow's scheduler ended by itself, or hangs.*tidegate up"):
        hold(cast(Stack, Stopping(airflow)), airflow.log.parent, seconds_between=0)


def test_a_stack_goes_on_while_all_components_live(airflow: AirflowStack, server: Any) -> None:
    with pytest.raises(SetupFailed, match="A part of the stack ended by itself"):
        hold(cast(Stack, Stopping(airflow)), airflow.log.parent, seconds_between=0)
