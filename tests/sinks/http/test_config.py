"""An endpoint's properties: which are refused, what goes out with requests, and that nothing shows them."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.certificates import Authority
from tests.sinks.http.receiver import Endpoint
from tidegate import inspect
from tidegate.errors import SettingsInvalid, SinkRefused, SinkUnavailable, TidegateError
from tidegate.inspect.examine import examine_pipeline
from tidegate.sinks.web import HttpConfig

VARIABLE = "TIDEGATE_HTTP"
CANARY = "hunter2hunter2"
SINK = "  - {kind: http, path: orders, stage: first}"

REFUSED = [
    ("hooks.example.com", "has no URL of an endpoint"),
    ("ftp://hooks.example.com", "has no URL of an endpoint"),
    ("https://hooks.example.com:99999", "has no URL of an endpoint"),
    ("{url}", "is neither a URL nor a JSON object"),
    ({}, "has no URL of an endpoint"),
    ({"url": "https://h", "verify": False}, "has verify, which tidegate does not support"),
    ({"url": "https://h", "basic.auth.user.info": CANARY}, "without a colon"),
    ({"url": f"https://me:{CANARY}@h", "basic.auth.user.info": "a:b"}, "has two logins"),
    ({"url": f"https://me:{CANARY}@h", "bearer.auth.token": "t"}, "has a login and a token"),
    (
        {"url": "https://h", "bearer.auth.token": f"{CANARY}\nx: y"},
        "that no header can have",
    ),
    ({"url": "https://h", "headers": CANARY}, "headers that are no object"),
    ({"url": "https://h", "headers": {"Idempotency-Key": CANARY}}, "has the header 'Idempotency-Key'"),
    ({"url": "https://h", "headers": {"x y": CANARY}}, "has the header 'x y'"),
    ({"url": "https://h", "headers": {"x": f"{CANARY}\r\n"}}, "content for the header x that no header"),
    ({"url": "https://h", "proxy.url": CANARY}, "has no URL of a proxy"),
    ({"url": "https://h", "timeout.seconds": "0"}, "timeout.seconds is not a number of seconds"),
    ({"url": "https://h", "timeout.seconds": "soon"}, "timeout.seconds is not a number of seconds"),
    ({"url": "https://h", "ssl.ca.location": "/nowhere"}, "ssl.ca cannot be used"),
    ({"url": "http://h", "ssl.ca.location": "/nowhere"}, "certificates for a URL without TLS"),
]


@pytest.mark.parametrize(("written", "message"), REFUSED, ids=str)
def test_unusable_properties_are_refused(written: Any, message: str) -> None:
    text = written if isinstance(written, str) else json.dumps(written)
    with pytest.raises(SettingsInvalid, match=VARIABLE) as caught:
        HttpConfig.parse(text, VARIABLE)
    assert message in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_path_comes_before_the_query() -> None:
    config = HttpConfig.parse("https://hooks.example.com/v1/?tenant=5#top", VARIABLE)
    assert config.url("orders/new") == "https://hooks.example.com/v1/orders/new?tenant=5"
    assert config.url(None) == "https://hooks.example.com/v1/?tenant=5"
    assert config.place == "https://hooks.example.com"


def test_proxy_is_what_is_connected_to() -> None:
    config = HttpConfig.parse(json.dumps({"url": "https://h/x", "proxy.url": "http://p:3128"}), VARIABLE)
    assert (config.address, config.host) == (("p", 3128), "h")


LOGINS = [
    ({"bearer.auth.token": CANARY}, "authorization", f"Bearer {CANARY}"),
    ({"basic.auth.user.info": f"me:{CANARY}"}, "authorization", f"me:{CANARY}"),
    ({"headers": {"X-Api-Key": CANARY}}, "x-api-key", CANARY),
]


@pytest.mark.parametrize(("properties", "header", "content"), LOGINS)
def test_secrets_go_out_and_are_never_shown(
    tmp_path: Path,
    endpoint: Endpoint,
    caplog: pytest.LogCaptureFixture,
    properties: dict[str, Any],
    header: str,
    content: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    http = json.dumps({"url": f"{endpoint.url}/{CANARY}?{CANARY}", **properties})
    committed = Committed(tmp_path, SINK, http=http)
    committed.commit(1, {"first": [("1", 1)]})
    # the endpoint repeats what it got, as some do in their errors
    endpoint.script = [(400, {}, f"no {content} for {CANARY} {base64.b64encode(content.encode()).decode()}")]
    with pytest.raises(SinkRefused, match="with status 400: no ") as caught:
        committed.publish(1)
    sent = {name.lower(): text for name, text in endpoint.arrivals[0][2].items()}[header]
    assert content in (
        sent,
        base64.b64decode(sent.removeprefix("Basic ") + "==", validate=False).decode("latin-1"),
    )
    (warning,) = inspect.sink_warnings(committed.app, committed.pipeline)
    failure = committed.app.ledger.failure(committed.stream, 1)
    (sink,) = committed.app.sinks(committed.stream, committed.pipeline)
    shown = [*traceback.format_exception(caught.value), warning, caplog.text, str(failure), str(sink.dataset)]
    shown += [repr(committed.app.settings), repr(HttpConfig.parse(http, VARIABLE))]
    for secret in (CANARY, base64.b64encode(f"me:{CANARY}".encode()).decode()):
        assert secret not in "\n".join(shown)
    for folder in (committed.folder / "lake", committed.folder):
        for file in folder.rglob("*"):
            assert not file.is_file() or CANARY.encode() not in file.read_bytes(), file


def tls_server(authority: Authority, folder: Path, client: Authority | None = None) -> ssl.SSLContext:
    certificate = authority.sign("endpoint")
    (folder / "server.pem").write_text(certificate.text + certificate.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    if client is not None:
        (folder / "clients.pem").write_text(client.own.text)
        context.load_verify_locations(folder / "clients.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("ours")


def publish(committed: Committed) -> None:
    committed.commit(1, {"first": [("1", 1)]})
    committed.publish(1)


def test_client_certificate_is_sent(tmp_path: Path, authority: Authority) -> None:
    client = authority.sign("client")
    (tmp_path / "ca.pem").write_text(authority.own.text)
    (tmp_path / "client.pem").write_text(client.text)
    (tmp_path / "client.key").write_text(client.encrypted_key(CANARY))
    with Endpoint(tmp_path, tls_server(authority, tmp_path, authority)).running() as endpoint:
        properties = {
            "url": endpoint.url,
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "client.pem"),
            "ssl.key.location": str(tmp_path / "client.key"),
            "ssl.key.password": CANARY,
        }
        committed = Committed(tmp_path, SINK, http=json.dumps(properties))
        assert inspect.sink_errors(committed.app, committed.pipeline) == []
        publish(committed)
        assert endpoint.emissions() == [("1", '{"n": 1}')]


def raise_sink_errors(committed: Committed) -> None:
    """Raise what `tidegate doctor` says of the sinks first."""
    for error in inspect.sink_errors(committed.app, committed.pipeline):
        raise error


def test_certificate_of_a_stranger_is_refused(tmp_path: Path, authority: Authority) -> None:
    with Endpoint(tmp_path, tls_server(authority, tmp_path)).running() as endpoint:
        committed = Committed(tmp_path, SINK, http=endpoint.url)
        with pytest.raises(SettingsInvalid, match="cannot be reached by TLS: "):
            raise_sink_errors(committed)
        with pytest.raises(SettingsInvalid, match="cannot be reached by TLS: "):
            publish(committed)
        assert endpoint.arrivals == []


def test_port_without_tls_is_refused(tmp_path: Path, endpoint: Endpoint, pauses: list[float]) -> None:
    del pauses
    committed = Committed(tmp_path, SINK, http=endpoint.url.replace("http:", "https:"))
    with pytest.raises(SettingsInvalid, match=r"cannot be reached by TLS.*that the port takes TLS"):
        raise_sink_errors(committed)
    with pytest.raises(SinkUnavailable, match=r"does not answer \(.*(?i:wrong.version.number|record layer)"):
        publish(committed)


def test_environment_has_no_say(tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    committed = Committed(tmp_path, SINK, http=endpoint.url)
    publish(committed)
    assert len(endpoint.arrivals) == 1


def test_missing_connection_says_what_to_set(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: http, path: a, connection: shop, stage: first}")
    with pytest.raises(SettingsInvalid, match=r"TIDEGATE_HTTP_SHOP is not set.*`tidegate_http_shop`"):
        raise_sink_errors(committed)


def test_doctor_names_each_sink_without_a_connection(tmp_path: Path) -> None:
    sinks = [f"  - {{kind: http, path: {name}, connection: {name}, stage: first}}" for name in ("a", "b")]
    twice = "  - {kind: http, path: c, connection: b, stage: first}"
    committed = Committed(tmp_path, "\n".join([*sinks, twice]))
    findings = list(examine_pipeline(committed.app, "shop", committed.pipeline))
    assert [(finding.check, finding.text.partition(" is not set")[0]) for finding in findings] == [
        ("pipeline shop", "halted: SettingsInvalid: TIDEGATE_HTTP_A"),
        ("sinks of shop", "SettingsInvalid: TIDEGATE_HTTP_B"),
    ]


def test_name_that_cannot_be_resolved_is_unavailable(tmp_path: Path, pauses: list[float]) -> None:
    committed = Committed(tmp_path, SINK, http="https://endpoint.invalid")
    with pytest.raises(TidegateError) as caught:
        publish(committed)
    assert isinstance(caught.value, SinkUnavailable)
    assert len(pauses) == 5
