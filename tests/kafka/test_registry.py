"""The client of schema registries, against a registry that speaks Confluent's REST API."""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.certificates import Authority
from tests.registry import RegistryServer, running_registry, tls_of
from tests.web import serving, url_of
from tidegate.errors import RegistryUnavailable, SchemaRefused, SchemaUnknown, SettingsInvalid
from tidegate.formats.schemas import RecordSchema
from tidegate.kafka.registry import SchemaRegistry
from tidegate.kafka.registry_config import RegistryConfig
from tidegate.settings import Settings

CANARY = "canary-7f3e"
PASSWORD = f"{CANARY}:p@ss/word"


def record(*fields: object) -> RecordSchema:
    return RecordSchema("AVRO", json.dumps({"type": "record", "name": "Level", "fields": fields}))


A = {"name": "a", "type": "long"}
B = {"name": "b", "type": ["null", "string"], "default": None}
FIRST, SECOND = record(A), record(A, B)
OTHER = record({"name": "a", "type": "string"})


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with running_registry() as server:
        yield server


@pytest.fixture
def registry(server: RegistryServer) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(RegistryConfig.parse(server.url)) as registry:
        yield registry


def test_schema_is_registered_once_and_read_by_id(registry: SchemaRegistry) -> None:
    first = registry.register("levels-value", FIRST)
    assert registry.register("levels-value", FIRST) == first
    second = registry.register("levels-value", SECOND)
    assert (registry.schema(first), registry.schema(second)) == (FIRST, SECOND)
    assert registry.versions("levels-value") == (1, 2)
    latest = registry.version("levels-value")
    assert (latest.version, latest.id, latest.schema) == (2, second, SECOND)
    assert registry.version("levels-value", 1).id == first


def test_looked_up_schema_is_not_registered(registry: SchemaRegistry, server: RegistryServer) -> None:
    assert registry.lookup("levels-value", FIRST) is None
    schema_id = registry.register("levels-value", FIRST)
    assert registry.lookup("levels-value", FIRST) == schema_id
    assert registry.lookup("levels-value", SECOND) is None
    assert registry.versions("nobody's") == ()
    assert list(server.subjects.versions) == ["levels-value"]


def test_schema_comes_with_its_references(registry: SchemaRegistry) -> None:
    size = json.dumps({"type": "enum", "name": "Size", "symbols": ["S", "L"]})
    box = json.dumps({"type": "record", "name": "Box", "fields": [{"name": "size", "type": "Size"}]})
    text = json.dumps({"type": "record", "name": "Level", "fields": [{"name": "box", "type": "Box"}]})
    schema = RecordSchema("AVRO", text, {"Size": size, "Box": box})
    schema_id = registry.register("levels-value", schema)
    assert registry.lookup("levels-value", schema) == schema_id
    again = registry.schema(schema_id)
    assert (again, list(again.imports)) == (schema, ["Size", "Box"])


def test_what_consumers_could_not_read_is_refused(registry: SchemaRegistry) -> None:
    registry.register("levels-value", FIRST)
    assert registry.is_compatible("levels-value", SECOND)
    assert not registry.is_compatible("levels-value", OTHER)
    assert registry.is_compatible("another", OTHER)
    with pytest.raises(SchemaRefused, match=r"not compatible.*long is read as string.*another subject"):
        registry.register("levels-value", OTHER)
    with pytest.raises(SchemaRefused, match="not valid"):
        registry.register("levels-value", RecordSchema("AVRO", "{"))


def test_unknown_schema_is_distinguished_from_registry_down(
    registry: SchemaRegistry, server: RegistryServer
) -> None:
    with pytest.raises(SchemaUnknown, match=r"does not have schema 7.*TIDEGATE_REGISTRY"):
        registry.schema(7)
    with pytest.raises(SchemaUnknown, match="version latest of subject levels-value"):
        registry.version("levels-value")
    for status in (429, 500, 503):
        server.status = status
        with pytest.raises(RegistryUnavailable, match=f"{status}.*nothing is lost"):
            registry.schema(1)
    assert server.asked[-3:] == ["GET schemas/ids/1"] * 3


def test_what_is_known_is_not_asked_for_again(registry: SchemaRegistry, server: RegistryServer) -> None:
    schema_id = registry.register("levels-value", FIRST)
    registry.schema(schema_id)
    server.status = 503
    assert registry.schema(schema_id) == FIRST


def test_nobody_at_the_address_is_a_passing_error() -> None:
    with pytest.raises(RegistryUnavailable, match=r"http://127.0.0.1:1 does not answer"):
        SchemaRegistry(RegistryConfig.parse("http://127.0.0.1:1")).versions("a")


class _AnotherServer(BaseHTTPRequestHandler):
    """A web server that is no registry, and gives one answer to everything."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"")

    def do_GET(self) -> None:
        status, body = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, b"<html>not found</html>", "it answers 404"),
        (404, b'{"error": "no such page"}', "it answers 404"),
        (405, b"", "it answers 405"),
        (200, b"<html>welcome</html>", "its answer is not JSON"),
        (200, b"\xff\xfe", "its answer is not JSON"),
        (200, b"{}", "its JSON is not that of a registry"),
        (200, b'["a"]', "its JSON is not that of a registry"),
    ],
)
def test_another_web_server_differs_from_a_registry(status: int, body: bytes, why: str) -> None:
    handler = type("Handler", (_AnotherServer,), {"answer": (status, body)})
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        url = url_of(server)
        with pytest.raises(SettingsInvalid, match=f"another web server.*{why}.*TIDEGATE_REGISTRY"):
            SchemaRegistry(RegistryConfig.parse(url)).versions("a")
        with pytest.raises(SettingsInvalid, match=f"another web server.*{why}|not that of a registry"):
            SchemaRegistry(RegistryConfig.parse(url)).schema(1)


def test_asking_leaves_no_thread_behind(registry: SchemaRegistry) -> None:
    before = set(threading.enumerate())
    registry.versions("a")
    more = {thread.name for thread in set(threading.enumerate()) - before}
    assert [name for name in more if "process_request_thread" not in name] == []  # the server's own


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("registry")
    authority, stranger = Authority("tests"), Authority("stranger")
    own, client = authority.sign("registry"), authority.sign("alice")
    texts = {
        "authority": authority.own.text,
        "stranger": stranger.own.text,
        "certificate": own.text,
        "key": own.key,
        "client": client.text,
        "client_key": client.encrypted_key(CANARY),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: folder / name for name in texts}


@pytest.fixture(scope="module")
def secured(files: Mapping[str, Path]) -> Iterator[RegistryServer]:
    with running_registry(f"alice:{PASSWORD}", tls_of(files)) as server:
        yield server


def properties(server: RegistryServer, files: Mapping[str, Path], **changed: str) -> dict[str, str]:
    defaults = {
        "url": server.url,
        "basic.auth.user.info": f"alice:{PASSWORD}",
        "ssl.ca.location": str(files["authority"]),
        "ssl.certificate.location": str(files["client"]),
        "ssl.key.location": str(files["client_key"]),
        "ssl.key.password": CANARY,
    }
    return defaults | {name.replace("__", "."): text for name, text in changed.items()}


def test_registry_login_uses_mutual_tls(secured: RegistryServer, files: Mapping[str, Path]) -> None:
    with SchemaRegistry(RegistryConfig.from_dict(properties(secured, files))) as registry:
        assert registry.schema(registry.register("levels-value", FIRST)) == FIRST
    # as Confluent's own client is told it
    theirs = SchemaRegistryClient(properties(secured, files))
    assert theirs.lookup_schema("levels-value", Schema(FIRST.text, "AVRO")).version == 1


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"basic__auth__user__info": "alice:" + CANARY}, r"refuses this login \(401\).*basic.auth.user.info"),
        ({"ssl__ca__location": "stranger"}, r"cannot be reached by TLS: .*ssl.ca.location"),
    ],
)
def test_wrong_login_or_certificate_shows_no_secret(
    secured: RegistryServer,
    files: Mapping[str, Path],
    changed: dict[str, str],
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    changed = {name: str(files[text]) if text in files else text for name, text in changed.items()}
    config = RegistryConfig.from_dict(properties(secured, files, **changed))
    with pytest.raises(SettingsInvalid, match=says) as caught, SchemaRegistry(config) as registry:
        registry.versions("a")
    assert CANARY not in f"{traceback.format_exception(caught.value)} {config!r} {caplog.text}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("registry:8081", "no URL"),
        ("http://", "no URL"),
        (f"http://alice:{CANARY}@registry:port", "no URL"),
        ('{"url": "http://registry", "basic.auth.user.info": "canary-7f3e"}', "without a colon"),
        ('{"url": "http://registry", "sasl.password": "canary-7f3e"}', "sasl.password"),
        ('{"basic.auth.user.info": "a:canary-7f3e"}', "no URL"),
        ('{"url": "https://registry", "ssl.ca.location": "/nowhere"}', "ssl.ca cannot be used"),
        (
            '{"url": "http://a:canary-7f3e@registry", "basic.auth.user.info": "b:canary-7f3e"}',
            "two logins",
        ),
        ('{"url": canary-7f3e', "neither a URL nor a JSON object"),
    ],
)
def test_unusable_registry_setting_shows_no_secret(text: str, says: str) -> None:
    settings = Settings.from_environment({"TIDEGATE_REGISTRY_SHOP": text})
    with pytest.raises(SettingsInvalid, match=says) as caught:
        settings.registry("shop")
    assert "TIDEGATE_REGISTRY_SHOP" in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_url_login_is_removed_from_the_url() -> None:
    config = RegistryConfig.parse(f"https://alice:{CANARY}%40x@registry.example.com/path/")
    assert config.url == "https://registry.example.com/path"
    assert config.for_client()["basic.auth.user.info"] == f"alice:{CANARY}@x"
    assert CANARY not in repr(config)
    assert config.redacted(f"no {CANARY}@x here") == "no *** here"


def test_missing_registry_says_where_to_set_it() -> None:
    with pytest.raises(SettingsInvalid, match=r"TIDEGATE_REGISTRY_SHOP is not set.*`tidegate_registry_shop`"):
        Settings.from_environment({}).registry("shop")


def test_schema_with_unregistered_imports_is_not_refused(registry: SchemaRegistry) -> None:
    size = json.dumps({"type": "enum", "name": "Size", "symbols": ["S", "L"]})
    text = json.dumps({"type": "record", "name": "Level", "fields": [{"name": "size", "type": "Size"}]})
    schema = RecordSchema("AVRO", text, {"Size": size})
    assert registry.is_compatible("levels-value", schema)
    assert registry.versions("Size") == ()
