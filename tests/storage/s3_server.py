"""A local S3 server, and a proxy before it that fails, stalls, comes late or loses answers on demand."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from localbucket import S3Handler

from tests.web import serving, url_of
from tidegate.storage import store as store_module

BUCKET = "bucket"
FaultKind = Literal["none", "fail", "deny", "stall", "lose", "late", "unconditional"]
_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@dataclass
class Fault:
    """A fault of the next `times` requests with this method whose path has `path` in it.

    none: nothing, they are only counted · fail: 503, and nothing is done · deny: 403, and nothing is done ·
    stall: no answer, and nothing is done · lose: it is done, but the connection ends without an answer ·
    late: it is done once the client has asked for the same again and was answered · unconditional: done, but
    without its condition. `met` counts.
    """

    kind: FaultKind
    method: str
    path: str
    times: int = 1
    met: int = 0
    status: int = 0
    overtaken: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)

    def meets(self, method: str, path: str) -> bool:
        """Whether this request has the fault; counts it."""
        if self.met == self.times or not self._concerns(method, path):
            return False
        self.met += 1
        return True

    def overtake(self, method: str, path: str) -> None:
        """Another request than those that it has met was answered."""
        if self.met and self._concerns(method, path):
            self.overtaken.set()

    def wait_answered(self) -> int:
        """The status that a late request came to."""
        assert self.answered.wait(600), f"nobody asked again: {self.method} {self.path}"
        return self.status

    def _concerns(self, method: str, path: str) -> bool:
        return method == self.method and self.path in path


@dataclass
class S3Server:
    """`url`: where the proxy listens. `faults` can be added to at any time."""

    url: str
    folder: Path
    faults: list[Fault] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    limit_patience: Callable[[float], None] = lambda seconds: None

    def fault(self, kind: FaultKind, method: str, path: str, times: int = 1) -> Fault:
        """Let such requests go wrong from now on. A client of this process gives up a silent one soon."""
        if kind in ("stall", "late"):
            self.limit_patience(1)
        self.faults.append(Fault(kind, method, path, times))
        return self.faults[-1]

    def environment(self) -> dict[str, str]:
        """Return the environment variables of a process that uses the server: the only setting for every
        part.
        """
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "eu-north-1",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "canary-secret",
        }


@contextmanager
def s3_of_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch, attempts: int) -> Iterator[S3Server]:
    """A server that this process uses, and gives up after so many attempts."""

    def limit_patience(seconds: float) -> None:
        monkeypatch.setattr(store_module, "_REQUEST_SECONDS", seconds)
        store_module._file_system.cache_clear()

    monkeypatch.setattr(store_module, "_ATTEMPTS", attempts)
    limit_patience(30)  # a busy machine may be slow to answer
    with s3_server(folder) as running:
        running.limit_patience = limit_patience
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running
    store_module._file_system.cache_clear()


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server whose bucket's objects are files below `folder`."""
    (folder / BUCKET).mkdir(parents=True)

    class Handler(S3Handler):  # type: ignore[misc]
        data_root = folder

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as backend:
        server = S3Server("", folder)
        handler = _proxy(backend.server_port, server)
        with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as proxy:
            server.url = url_of(proxy)
            yield server
            server.ended.set()


def _proxy(backend: int, server: S3Server) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

        def _forward(self) -> None:
            body = self._body()
            if self.command == "PUT" and self.path.endswith("/"):
                self._answer(200, {"ETag": '"marker"'}, b"")  # S3 takes an empty folder; this server does not
                return
            fault = next((f for f in server.faults if f.meets(self.command, self.path)), None)
            kind = fault.kind if fault is not None else None
            if kind == "fail":
                self._answer(503, {}, b"")
                return
            if kind == "deny":
                headers = {"Content-Type": "application/xml", "Content-Length": str(len(_DENIED))}
                self._answer(403, headers, _DENIED)
                return
            if kind == "stall":
                server.ended.wait()
                self.close_connection = True
                return
            if fault is not None and kind == "late":
                self._ask_late(body, fault)
                return
            answer, content = self._asked(body, is_conditional=kind != "unconditional")
            if kind == "lose":
                self.close_connection = True
                return
            self._answer(answer.status, dict(answer.getheaders()), content)
            for late in server.faults:
                late.overtake(self.command, self.path)

        def _ask_late(self, body: bytes, fault: Fault) -> None:
            """The client has given up by then: it gets no answer."""
            self.close_connection = True
            fault.overtaken.wait(600)
            answer, _ = self._asked(body, is_conditional=True)
            fault.status = answer.status
            fault.answered.set()

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def _asked(self, body: bytes, is_conditional: bool) -> tuple[http.client.HTTPResponse, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", backend)
            left_out = {"transfer-encoding", "content-length", "expect"}
            left_out |= set() if is_conditional else {"if-none-match"}
            headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer, content

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else len(content)
            if status != 204:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815

    return Proxy
