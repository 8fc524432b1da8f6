"""The client against a server that lets its first request wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.web import serving, url_of
from tidegate.errors import SetupFailed
from tidegate_dev import airflow_client
from tidegate_dev.airflow_client import AirflowClient

ANSWER_S = 0.2


class SlowAtFirst(BaseHTTPRequestHandler):
    """A server that answers its first request too late. Logins are answered at once."""

    requests: list[str]

    def do_GET(self) -> None:
        self._answer(b'{"state": "success"}')

    def do_POST(self) -> None:
        body = b'{"access_token": "t"}' if self.path == "/auth/token" else b"{}"
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        if self.path != "/auth/token":
            self.requests.append(self.command)
            if len(self.requests) == 1:
                time.sleep(3 * ANSWER_S)
        with suppress(BrokenPipeError):  # the client has given up
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowClient]:
    monkeypatch.setattr(airflow_client, "_ANSWER_S", ANSWER_S)
    monkeypatch.setattr(SlowAtFirst, "requests", [], raising=False)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), SlowAtFirst)) as server:
        yield AirflowClient(url_of(server), "admin", "secret")


def test_get_without_an_answer_is_repeated(client: AirflowClient) -> None:
    assert client.api("GET", "/dags/stock/dagRuns/now") == {"state": "success"}
    assert SlowAtFirst.requests == ["GET", "GET"]


def test_post_without_an_answer_is_not_repeated(client: AirflowClient) -> None:
    with pytest.raises(SetupFailed, match="does not answer: timed out"):
        client.api("POST", "/dags/stock/dagRuns", {})
    assert SlowAtFirst.requests == ["POST"]
