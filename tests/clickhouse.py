"""The engine of ClickHouse behind HTTP, in a process of the test run's own, and a database for each test.

No package has a whole server. chDB has its engine, and this file the part of a server that a client meets: a
statement in `query` or in the body, rows as an Arrow stream behind it, the settings of the URL, a login, and
errors with their codes.
"""

from __future__ import annotations

import json
import os
import re
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

from tidegate_dev.processes import Supervised, free_port

USER, PASSWORD = "tidegate", "canary-house"
_OF_HTTP = {"query", "database", "wait_end_of_query"}
"""Parameters of a request that are no settings of the engine."""
_INSERT = re.compile(r"INSERT INTO (.*?) \((.*)\) FORMAT ArrowStream", re.DOTALL)


class ClickHouseServer:
    """The process with the engine."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "tests.clickhouse", str(folder), str(self.port)]
        root = Path(__file__).resolve().parents[1]
        environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'tidegate-dev'}"}
        self._process = Supervised("ClickHouse", command, folder / "server.log", environment, grace_s=1)

    def start(self) -> None:
        """Up, and ready for requests."""
        self._process.start()
        self._process.wait_ready(self._answers)

    def stop(self) -> None:
        """Down at once, as in a crash."""
        self._process.kill()

    def new_database(self) -> str:
        """The URL, password included, of an empty database."""
        name = f"test_{uuid4().hex[:8]}"
        ask(self.url("default"), f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str, password: str = PASSWORD) -> str:
        """The URL of a database."""
        return f"http://{USER}:{password}@127.0.0.1:{self.port}/?database={database}"

    def _answers(self) -> bool:
        try:
            ask(self.url("default"), "SELECT 1")
        except OSError:
            return False
        return True


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement as another client does, and return its rows."""
    parts = urlsplit(url)
    target = f"http://127.0.0.1:{parts.port}/?{parts.query}"
    request = Request(target, f"{statement} FORMAT JSONCompactEachRow".encode(), method="POST")
    if not statement.startswith(("SELECT", "SHOW")):
        request.data = statement.encode()
    request.add_header("x-clickhouse-user", parts.username or "")
    request.add_header("x-clickhouse-key", parts.password or "")
    with urlopen(request, timeout=600) as response:
        return [tuple(json.loads(line)) for line in response.read().splitlines() if line]


@contextmanager
def clickhouse_server() -> Iterator[ClickHouseServer]:
    """A running server in a folder that is removed at the end."""
    with TemporaryDirectory(prefix="tidegate-clickhouse-") as folder:
        server = ClickHouseServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Any
    folder: Path
    lock = Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parameters = dict(parse_qsl(urlsplit(self.path).query))
        try:
            self._authenticate()
            with self.lock:
                answer = self._run(parameters, body)
        except RuntimeError as error:
            self._answer(500, str(error).encode(), re.match(r"Code: (\d+)", str(error)))
        except PermissionError as error:
            self._answer(403, str(error).encode(), re.match(r"Code: (\d+)", str(error)))
        else:
            self._answer(200, answer, None)

    def _authenticate(self) -> None:
        user, key = self.headers.get("x-clickhouse-user"), self.headers.get("x-clickhouse-key")
        basic = self.headers.get("authorization", "")
        if basic:
            user, _, key = b64decode(basic.removeprefix("Basic ")).decode().partition(":")
        if (user, key) != (USER, PASSWORD):
            message = f"Code: 516. DB::Exception: {user}: Authentication failed: password {key} is incorrect."
            raise PermissionError(f"{message} (AUTHENTICATION_FAILED) (version 26.5.1.1)")

    def _run(self, parameters: dict[str, str], body: bytes) -> bytes:
        self.engine.query(f"USE `{parameters.get('database', 'default')}`")
        settings = {name: text for name, text in parameters.items() if name not in _OF_HTTP}
        for name, text in settings.items():
            self.engine.query(f"SET {name} = {text}")
        statement = parameters.get("query", "")
        if statement and body:
            return self._insert(statement, body)
        result: bytes = self.engine.query(statement or body.decode()).bytes()
        return result

    def _insert(self, statement: str, body: bytes) -> bytes:
        match = _INSERT.fullmatch(statement)
        assert match is not None, statement
        table, columns = match.groups()
        described = self.engine.query(f"DESCRIBE TABLE {table}", "JSONCompactEachRow").bytes().splitlines()
        types = {f"`{name}`": type_ for name, type_, *_ in map(json.loads, described)}
        structure = ", ".join(f"{name} {types[name]}" for name in columns.split(", "))
        escaped = structure.replace("\\", "\\\\").replace("'", "\\'")
        file = self.folder / "rows.arrow"
        file.write_bytes(body)
        source = f"file('{file}', 'ArrowStream', '{escaped}')"
        self.engine.query(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {source}")
        return b""

    def _answer(self, status: int, body: bytes, code: re.Match[str] | None) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if code is not None:
            self.send_header("x-clickhouse-exception-code", code[1])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _serve(folder: Path, port: int) -> None:
    from chdb import session  # late: only this process has the engine

    _Handler.engine, _Handler.folder = session.Session(str(folder / "data")), folder
    with ThreadingHTTPServer(("127.0.0.1", port), _Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
