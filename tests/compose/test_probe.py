"""The stack's health probe, against a server that answers as it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.compose.model import interpolate, raw
from tests.web import serving

_ANSWER = {"status": "ALIVE", "triggerer": {"status": "healthy"}, "scheduler": {"status": "unhealthy"}}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(_ANSWER).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    with serving(HTTPServer(("127.0.0.1", 0), _Handler)) as server:
        yield f"127.0.0.1:{server.server_port}"


def probe(address: str, expected: str) -> subprocess.CompletedProcess[str]:
    """Run the program as the containers do."""
    program = interpolate(raw()["x-probe"], {})
    command = [sys.executable, "-c", program, address, "/json/", expected]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("expected", ["status=ALIVE", "triggerer.status=healthy"])
def test_what_is_well_passes(address: str, expected: str) -> None:
    assert probe(address, expected).returncode == 0


@pytest.mark.parametrize(
    ("expected", "message"),
    [("scheduler.status=healthy", "scheduler.status is unhealthy"), ("dag_processor.status=healthy", "Key")],
)
def test_what_is_not_fails_and_says_why(address: str, expected: str, message: str) -> None:
    done = probe(address, expected)
    assert done.returncode == 1
    assert message in done.stderr


def test_what_does_not_answer_fails() -> None:
    assert probe("127.0.0.1:1", "status=ALIVE").returncode == 1
