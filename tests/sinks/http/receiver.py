"""The receiver of the documentation, in a thread; it misbehaves by a script, and notes what arrives."""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import HTTPServer
from pathlib import Path
from typing import Any

from tests.web import serving

PAGE = Path(__file__).resolve().parents[3] / "docs" / "http.md"


def receiver_of_the_page(folder: Path) -> dict[str, Any]:
    """Run the page's Python, with its database in a folder."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "receiver"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(compile(code, str(PAGE), "exec"), names)
    finally:
        os.chdir(before)
    return names


class Endpoint:
    """A running receiver.

    `script` has what it does to the next requests, and does to all others what is right:

    - a number, or a number and headers: answers with that status, and uses nothing of the request;
    - `reset`: closes the connection before it uses the request; `reset_after`: in the middle of its answer;
    - `slow`: answers after a second.

    `arrivals` has the idempotency key, the body and the headers of each request.
    """

    def __init__(self, folder: Path, tls: ssl.SSLContext | None = None) -> None:
        self.script: list[Any] = []
        self.arrivals: list[tuple[str, bytes, dict[str, str]]] = []
        names = receiver_of_the_page(folder)
        self._database = names["database"]
        endpoint = self

        class Scripted(names["Receiver"]):  # type: ignore[misc]
            def do_POST(self) -> None:  # noqa: N802
                endpoint.answer(self)

            def do(self) -> None:
                super().do_POST()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Scripted)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[Endpoint]:
        with closing(self._database), serving(self._server):
            yield self

    def answer(self, handler: Any) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        key = handler.headers["Idempotency-Key"]
        self.arrivals.append((key, body, dict(handler.headers)))
        handler.rfile = _Again(body)
        act = self.script.pop(0) if self.script else "right"
        if act == "slow":
            time.sleep(1)
        if act in ("right", "slow"):
            handler.do()
        elif act == "reset":
            handler.close_connection = True
        elif act == "reset_after":
            handler.wfile = _Cut(handler.wfile)
            handler.do()
            handler.close_connection = True
        else:
            self._status(handler, *(act if isinstance(act, tuple) else (act, {})))

    def _status(self, handler: Any, status: int, headers: dict[str, str], text: str = "not now") -> None:
        handler.send_response(status)
        for name, content in {"Content-Length": str(len(text)), **headers}.items():
            handler.send_header(name, content)
        handler.end_headers()
        handler.wfile.write(text.encode())

    def emissions(self) -> list[tuple[str, str]]:
        """Key and value of each emission that the receiver has used, in order."""
        return [
            tuple(row) for row in self._database.execute("SELECT key, value FROM emissions ORDER BY rowid")
        ]

    def idempotency_keys(self) -> list[str]:
        """The idempotency keys of all requests, repetitions included."""
        return [key for key, _, _ in self.arrivals]

    def bodies(self) -> Sequence[bytes]:
        return [body for _, body, _ in self.arrivals]


class _Again:
    """A body that was read already, to be read once more."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def read(self, _: int) -> bytes:
        return self._body

    def close(self) -> None:
        pass

    closed = False


class _Cut:
    """The answer's stream, which takes a few bytes only."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, content: bytes) -> int:
        self._stream.write(content[:10])
        return len(content)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()
