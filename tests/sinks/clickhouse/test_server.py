"""A server that does not answer, refuses, or is not the one of the setting; and no secret in any message."""

from __future__ import annotations

import json
import logging
import ssl
import traceback
from base64 import b64decode, b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.certificates import Authority
from tests.clickhouse import PASSWORD, ClickHouseServer
from tests.sinks.clickhouse.house import House
from tests.web import serving, url_of
from tidegate import inspect
from tidegate.app import App
from tidegate.errors import SettingsInvalid, SinkRefused, SinkUnavailable, TidegateError
from tidegate.sinks.clickhouse.server import opened, quoted_name, quoted_text
from tidegate.sinks.web import HttpConfig

CANARY = "canary-4711"
VARIABLE = "TIDEGATE_CLICKHOUSE"


class Scripted(BaseHTTPRequestHandler):
    """Answers each request with one status, code and text; status 0 closes the connection.

    It repeats the login and the path of the request, as some servers and proxies do in their errors.
    """

    status = 200
    code = 0
    text = ""
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.paths.append(self.path)
        if not self.status:
            return
        self.send_response(self.status)
        if self.code:
            self.send_header("x-clickhouse-exception-code", str(self.code))
        self.end_headers()
        login = self.headers.get("authorization", "")
        plain = b64decode(login.removeprefix("Basic ")) if login.startswith("Basic ") else b""
        if self.text:
            self.wfile.write(f"{self.text} {login} {self.path} ".encode() + plain)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def scripted() -> Iterator[str]:
    with serving(HTTPServer(("127.0.0.1", 0), Scripted)) as server:
        yield url_of(server)


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (500, 252, SinkUnavailable, "answers 500: Code: 252"),
        (500, 60, SinkRefused, "refuses a statement: answers 500: Code: 60"),
        (404, 0, SinkRefused, "refuses a statement: answers 404"),
        (302, 0, SinkRefused, "refuses a statement: answers 302"),
        (503, 0, SinkUnavailable, "answers 503"),
        (0, 0, SinkUnavailable, "does not answer"),
    ],
)
def test_answer_says_whether_a_retry_helps(
    scripted: str,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: int,
    error: type[TidegateError],
    message: str,
) -> None:
    text = f"Code: {code}. DB::Exception: of {CANARY} (NAME) (version 1.2)"
    for name, value in (("status", status), ("code", code), ("text", text)):
        monkeypatch.setattr(Scripted, name, value)
    config = HttpConfig.parse(scripted.replace("//", f"//me:{CANARY}@"), VARIABLE)
    with opened(config) as server, pytest.raises(error, match=message) as caught:
        server.run("SELECT 1")
    assert VARIABLE in str(caught.value)
    assert CANARY not in str(caught.value)


def test_statements_have_the_settings_that_exactness_needs(
    scripted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scripted, "paths", [])
    with opened(HttpConfig.parse(f"{scripted}/?database=shop&insert_quorum=auto", VARIABLE)) as server:
        assert server.rows("SELECT 1") == []
    (path,) = Scripted.paths
    expected = ["database=shop", "insert_quorum=auto", "async_insert=0", "insert_deduplicate=0"]
    assert [setting for setting in expected if setting not in path] == []


@pytest.mark.parametrize(
    "properties", [{"basic.auth.user.info": f"me:{CANARY}"}, {"bearer.auth.token": CANARY}]
)
def test_secrets_are_never_shown_or_stored(
    tmp_path: Path,
    scripted: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    properties: dict[str, str],
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, value in (("status", 500), ("code", 60), ("text", f"no {CANARY}")):
        monkeypatch.setattr(Scripted, name, value)
    text = json.dumps({"url": f"{scripted}/?{CANARY}=1", **properties})
    stream = House(tmp_path, text)
    stream.commit(1, {"first": [("a", 1)]})
    with pytest.raises(SinkRefused, match=r"no \*\*\*") as caught:
        stream.publish(1)
    shown = [*traceback.format_exception(caught.value), caplog.text, str(stream.sink.dataset)]
    shown += [*inspect.sink_warnings(stream.app, stream.pipeline), repr(stream.app.settings)]
    shown += [str(stream.app.ledger.failure(stream.stream, 1)), repr(stream.sink._config)]
    for secret in (CANARY, b64encode(f"me:{CANARY}".encode()).decode()):
        assert secret not in "\n".join(shown)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [file for file in files if CANARY.encode() in file.read_bytes()] == []


def test_unknown_certificate_is_refused(tmp_path: Path) -> None:
    certificate = Authority("theirs").sign("endpoint")
    (tmp_path / "server.pem").write_text(certificate.text + certificate.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server = HTTPServer(("127.0.0.1", 0), Scripted)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        config = HttpConfig.parse(url_of(server).replace("http:", "https:"), VARIABLE)
        with opened(config) as sink, pytest.raises(SettingsInvalid, match="cannot be reached by TLS"):
            sink.run("SELECT 1")


def test_wrong_password_is_refused(tmp_path: Path, clickhouse: ClickHouseServer) -> None:
    stream = House(tmp_path, clickhouse.url("default", CANARY))
    stream.commit(1, {"first": [("a", 1)]})
    with pytest.raises(SinkRefused, match=r"Authentication failed.*Correct the URL or the login") as caught:
        stream.publish(1)
    assert CANARY not in str(caught.value)


def test_unreachable_server_is_transient(tmp_path: Path) -> None:
    stream = House(tmp_path, f"http://me:{CANARY}@127.0.0.1:1")
    stream.commit(1, {"first": [("a", 1)]})
    with pytest.raises(SinkUnavailable, match=r"http://127.0.0.1:1\) does not answer") as caught:
        stream.publish(1)
    assert CANARY not in str(caught.value)


def test_missing_database_is_refused(tmp_path: Path, clickhouse: ClickHouseServer) -> None:
    stream = House(tmp_path, clickhouse.url("missing"))
    stream.commit(1, {"first": [("a", 1)]})
    with pytest.raises(SinkRefused, match="missing"):
        stream.publish(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clickhouse://host:9000", "has no URL"),
        ("host:8123", "has no URL"),
        (json.dumps({"url": "https://host", "user": "me"}), "has user, which tidegate does not support"),
        ("", "is not set"),
    ],
)
def test_wrong_setting_is_refused_before_planning(tmp_path: Path, text: str, message: str) -> None:
    stream = House(tmp_path, text)
    with pytest.raises(SettingsInvalid, match=message):
        stream.sink.check_settings()


def test_password_without_tls_is_a_warning(appending: House) -> None:
    (warning,) = appending.sink.warnings()
    assert "without TLS" in warning
    assert PASSWORD not in warning + repr(appending.sink._config) + repr(appending.app.settings)
    appending.environment[VARIABLE] = f"https://me:{CANARY}@host"
    appending.app = App.from_environment(appending.environment)
    assert list(appending.sink.warnings()) == []


def test_target_is_checked_without_writing(appending: House) -> None:
    appending.sink.check_target()
    assert appending.ask("SHOW TABLES") == []
    assert appending.sink.dataset.name == "visitors"
    assert appending.sink.dataset.namespace.startswith("clickhouse://127.0.0.1:")


@pytest.mark.parametrize("text", ["it's", "a`b", "\\", "\\'", "\n", "é"])
def test_quoted_texts_and_names_survive(appending: House, text: str) -> None:
    query = f"SELECT {quoted_text(text)} AS {quoted_name(text)}"
    assert appending.ask(f"SELECT {quoted_name(text)} FROM ({query})") == [(text,)]
