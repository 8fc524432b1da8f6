"""A schema registry of the tests' own: what of Confluent's REST API tidegate and Confluent's clients ask for,
with TLS, a client's certificate and basic auth.

Compatibility goes by a small rule: of Avro the fields, their defaults and the promotions of numbers; of
Protobuf that no number changes its type.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.web import serving

_SUBJECT, _VERSION, _SCHEMA, _CONFLICT, _INVALID = 40401, 40402, 40403, 409, 42201
_PROMOTED = {"int": "long float double", "long": "float double", "float": "double"}
_PROMOTED |= {"string": "bytes", "bytes": "string"}


class Refused(Exception):
    """An error as the API has it: the code, of which the first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass
class Subjects:
    """The registered schemas: `schemas` by their ids less one, `versions` as ids, by subject.

    `deleted` has the subjects and numbers of versions that were deleted softly.
    """

    schemas: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, list[int]] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)
    levels: dict[str, str] = field(default_factory=lambda: {"": "BACKWARD"})

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        _check(schema)
        if schema not in self.schemas:
            self._require_compatible(subject, schema)
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        ids = self.versions.get(subject, [])
        if schema_id not in ids:
            self._require_compatible(subject, schema)
            self.versions[subject] = [*ids, schema_id]
        return schema_id

    def lookup(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        ids = self._ids(subject)
        for number, schema_id in enumerate(ids, start=1):
            if self.schemas[schema_id - 1] == schema:
                return self.version(subject, str(number))
        raise Refused(_SCHEMA, "Schema not found")

    def version(self, subject: str, number: str, with_deleted: bool = True) -> dict[str, Any]:
        ids = self._ids(subject)
        at = len(ids) if number in ("latest", "-1") else int(number)
        if not 0 < at <= len(ids) or ((subject, at) in self.deleted and not with_deleted):
            raise Refused(_VERSION, f"Version {number} not found.")
        return {"subject": subject, "version": at, "id": ids[at - 1], **self.schemas[ids[at - 1] - 1]}

    def schema(self, schema_id: int) -> dict[str, Any]:
        if not 0 < schema_id <= len(self.schemas):
            raise Refused(_SCHEMA, f"Schema {schema_id} not found")
        return self.schemas[schema_id - 1]

    def problems(self, subject: str, schema: dict[str, Any]) -> list[str]:
        """Return why the subject's level refuses a schema."""
        _check(schema)
        level = self.levels.get(subject, self.levels[""])
        ids = self.versions.get(subject, [])
        before = [self.schemas[schema_id - 1] for schema_id in ids]
        problems: list[str] = []
        for old in before if level.endswith("_TRANSITIVE") else before[-1:]:
            if level.startswith(("BACKWARD", "FULL")):
                problems += _unreadable(reader=schema, writer=old)
            if level.startswith(("FORWARD", "FULL")):
                problems += _unreadable(reader=old, writer=schema)
        return problems

    def _ids(self, subject: str) -> list[int]:
        if subject not in self.versions:
            raise Refused(_SUBJECT, f"Subject '{subject}' not found.")
        return self.versions[subject]

    def _require_compatible(self, subject: str, schema: dict[str, Any]) -> None:
        if problems := self.problems(subject, schema):
            raise Refused(_CONFLICT, f"Schema being registered is incompatible: {'; '.join(problems)}")


def _check(schema: dict[str, Any]) -> None:
    if "schemaType" not in schema:
        try:
            json.loads(schema["schema"])
        except ValueError:
            raise Refused(_INVALID, "Invalid schema") from None


def _unreadable(reader: dict[str, Any], writer: dict[str, Any]) -> list[str]:
    kind = reader.get("schemaType", "AVRO")
    if kind != writer.get("schemaType", "AVRO"):
        return [f"it is {kind}"]
    if kind == "AVRO":
        return _avro_problems(json.loads(reader["schema"]), json.loads(writer["schema"]), "")
    if kind == "PROTOBUF":
        old, new = _numbers(writer["schema"]), _numbers(reader["schema"])
        return [f"number {n} is {new[n]}" for n in sorted(old.keys() & new.keys()) if old[n] != new[n]]
    return []


def _numbers(text: str) -> dict[str, str]:
    return {number: type_ for type_, number in re.findall(r"([\w.]+)\s+\w+\s*=\s*(\d+)\s*[;\[]", text)}


def _avro_problems(reader: Any, writer: Any, path: str) -> list[str]:
    """Return why data of one Avro schema cannot be read by another."""
    if isinstance(writer, list):
        return [problem for branch in writer for problem in _avro_problems(reader, branch, path)]
    if isinstance(reader, list):
        fits = any(not _avro_problems(branch, writer, path) for branch in reader)
        return [] if fits else [f"{path}: {writer} is in no branch"]
    of_reader, of_writer = (
        schema["type"] if isinstance(schema, dict) else schema for schema in (reader, writer)
    )
    if of_reader != of_writer:
        promoted = of_reader in _PROMOTED.get(str(of_writer), "").split()
        return [] if promoted else [f"{path}: {of_writer} is read as {of_reader}"]
    if of_reader == "array":
        return _avro_problems(reader["items"], writer["items"], f"{path}[]")
    if of_reader != "record":
        return []
    written = {column["name"]: column for column in writer["fields"]}
    problems = []
    for column in reader["fields"]:
        place = f"{path}.{column['name']}"
        if column["name"] in written:
            problems += _avro_problems(column["type"], written[column["name"]]["type"], place)
        elif "default" not in column:
            problems.append(f"{place} has no default")
    return problems


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RegistryServer

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests' output is read by people."""

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self.server.asked.append(f"{method} {'/'.join(path)}")
        if self.server.login and self.headers.get("Authorization") != self.server.login:
            self._send(401, {"error_code": 401, "message": "Unauthorized"})
        elif self.server.status:
            self._send(self.server.status, {"error_code": self.server.status, "message": "not now"})
        else:
            try:
                self._send(200, self._result(method, path, json.loads(body or b"null")))
            except Refused as error:
                status = int(str(error.code)[:3])
                self._send(status, {"error_code": error.code, "message": error.message})

    def _send(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _result(self, method: str, path: list[str], body: Any) -> Any:
        subjects = self.server.subjects
        schema = _of_body(body)
        match method, path:
            case "GET", ["subjects"]:
                return list(subjects.versions)
            case "POST", ["subjects", subject, "versions"]:
                return {"id": subjects.register(subject, schema)}
            case "POST", ["subjects", subject]:
                return subjects.lookup(subject, schema)
            case "GET", ["subjects", subject, "versions"]:
                return list(range(1, len(subjects._ids(subject)) + 1))
            case "GET", ["subjects", subject, "versions", number]:
                return subjects.version(subject, number, "deleted=true" in self.path.lower())
            case "GET", ["schemas", "ids", schema_id]:
                return subjects.schema(int(schema_id))
            case "POST", ["compatibility", "subjects", subject, "versions", *_]:
                problems = subjects.problems(subject, schema)
                return {"is_compatible": not problems, "messages": problems}
            case "GET", ["config", *subject]:
                level = subjects.levels.get("".join(subject), subjects.levels[""])
                return {"compatibilityLevel": level}
            case "PUT", ["config", *subject]:
                subjects.levels["".join(subject)] = body["compatibility"]
                return body
        raise Refused(404, "HTTP 404 Not Found")


def _of_body(body: Any) -> dict[str, Any]:
    """Return the fields that distinguish schemas; as in the real registry, the type AVRO is left out."""
    names = ("schema", "schemaType", "references")
    schema = {name: body[name] for name in names if isinstance(body, dict) and body.get(name)}
    if schema.get("schemaType") == "AVRO":
        del schema["schemaType"]
    return schema


class RegistryServer(ThreadingHTTPServer):
    """`asked` are the requests so far; `status`, if it is one, is what every request is answered with."""

    daemon_threads = True

    def __init__(self, login: str = "", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.login = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
        self.subjects = Subjects()
        self.asked: list[str] = []
        self.status = 0
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not take the certificate hangs up: that is its own business."""


@contextmanager
def running_registry(login: str = "", tls: ssl.SSLContext | None = None) -> Iterator[RegistryServer]:
    """A registry with nothing in it, until the end of the block."""
    with serving(RegistryServer(login, tls)) as server:
        yield server


def tls_of(files: Mapping[str, Path]) -> ssl.SSLContext:
    """A server's context from `certificate` and `key`; with `authority`, clients need a certificate of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate"], files["key"])
    if "authority" in files:
        context.load_verify_locations(files["authority"])
        context.verify_mode = ssl.CERT_REQUIRED
    return context
