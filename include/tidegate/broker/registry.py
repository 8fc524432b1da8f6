"""A schema registry, by Confluent's own client: it asks when it is asked, and has no thread of its own."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidegate.broker.registry_config import RegistryConfig
from tidegate.errors import (
    RegistryUnavailable,
    SchemaRefused,
    SchemaUnknown,
    SettingsInvalid,
    TidegateError,
)
from tidegate.formats.schemas import RecordSchema, SchemaKind

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

_AVRO: SchemaKind = "AVRO"
_PASSING = (408, 429)
_NO_LOGIN = (401, 403)
_CONFLICT, _NOT_FOUND, _SERVER = 409, 404, 500
_OF_ANYBODY = (400, _NOT_FOUND, 405, 406, 415)
_NO_CODES = (None, -1)
"""A registry's refusal has a code of its own; for an answer without one, Confluent's client has -1."""


@dataclass(frozen=True)
class SubjectVersion:
    """What a subject has under a version's number: the schema, and its id, by which messages name it."""

    subject: str
    version: int
    id: int
    schema: RecordSchema


def _numbers(versions: Any) -> tuple[int, ...]:
    """Raises TypeError where it is no list of numbers."""
    if not isinstance(versions, list) or not all(isinstance(version, int) for version in versions):
        raise TypeError(type(versions).__name__)
    return tuple(sorted(versions))


class SchemaRegistry:
    """A registry. Whatever is asked of it raises RegistryUnavailable, and SettingsInvalid where it does not
    take the login, or is none.

    Texts are cached: what an id means never changes. As a context manager it ends its connections.
    """

    def __init__(self, config: RegistryConfig) -> None:
        self.config = config

    @cached_property
    def _client(self) -> Any:  # whose types say that all may be None
        from confluent_kafka.schema_registry import SchemaRegistryClient  # late: of an extra

        return SchemaRegistryClient(self.config.for_client())

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        if "_client" in self.__dict__:
            self._client.close()

    def schema(self, schema_id: int) -> RecordSchema:
        """By the id that messages have. Raises SchemaUnknown."""
        with self._asked(f"schema {schema_id}"):
            return self._read(self._client.get_schema(schema_id))

    def versions(self, subject: str, with_deleted: bool = False) -> tuple[int, ...]:
        """The numbers of a subject's versions, rising; none: there is no such subject. `with_deleted`: also
        of those that are no more offered, by which messages may still be written.
        """
        try:
            with self._asked(f"subject {subject}"):
                return _numbers(self._client.get_versions(subject, deleted=with_deleted))
        except SchemaUnknown:
            return ()

    def version(self, subject: str, number: int | None = None) -> SubjectVersion:
        """A version of a subject, deleted or not; None: the latest, which is asked for each time. Raises
        SchemaUnknown.
        """
        what = f"version {number or 'latest'} of subject {subject}"
        with self._asked(what):
            if number is None:
                self._client.clear_latest_caches()
                found = self._client.get_latest_version(subject)
            else:
                found = self._client.get_version(subject, number, deleted=True)
            return SubjectVersion(subject, found.version, found.schema_id, self._read(found.schema))

    def lookup(self, subject: str, schema: RecordSchema) -> int | None:
        """The id of a schema that a subject has; None: it does not have it."""
        try:
            with self._asked(f"subject {subject}"):
                return int(self._client.lookup_schema(subject, self._written(schema)).schema_id)
        except SchemaUnknown:
            return None

    def register(self, subject: str, schema: RecordSchema) -> int:
        """The id of a schema that a subject has now, and keeps. What it refers to becomes subjects, too, by
        its own names. Raises SchemaRefused where the subject's rules are against it.
        """
        with self._asked(f"subject {subject}"):
            written = self._written(schema, register=True)
            return int(self._client.register_schema(subject, written))

    def is_compatible(self, subject: str, schema: RecordSchema) -> bool:
        """Whether a subject would take a schema, by the rule that it has. Raises SchemaRefused for a schema
        that is none.
        """
        with self._asked(f"subject {subject}"):
            return bool(self._client.test_compatibility_all_versions(subject, self._written(schema)))

    def _read(self, schema: Schema) -> RecordSchema:
        if not schema.schema_str:
            raise TypeError("an answer without a schema")
        imports: dict[str, str] = {}
        self._follow(schema.references or [], imports)
        kind: Any = schema.schema_type or _AVRO
        return RecordSchema(kind, schema.schema_str, imports)

    def _follow(self, references: list[Any], imports: dict[str, str]) -> None:
        """What is referred to, each before what refers to it."""
        for reference in references:
            if reference.name not in imports:
                schema = self._client.get_version(reference.subject, reference.version).schema
                self._follow(schema.references or [], imports)
                imports[reference.name] = schema.schema_str

    def _written(self, schema: RecordSchema, register: bool = False) -> Schema:
        """As the client has it: what is referred to lies under subjects of the same names."""
        from confluent_kafka.schema_registry import Schema, SchemaReference

        references: list[SchemaReference] = []
        for name, text in schema.imports.items():
            imported = Schema(text, schema.kind, list(references))
            if register:
                self._client.register_schema(name, imported)
            number = self._client.lookup_schema(name, imported).version
            references.append(SchemaReference(name, name, number))
        return Schema(schema.text, schema.kind, references)

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Errors of the client as tidegate's own."""
        import httpx2 as httpx
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            yield
        except SchemaRegistryError as error:
            if error.http_status_code in _OF_ANYBODY and error.error_code in _NO_CODES:
                raise self._no_registry(f"it answers {error.http_status_code}") from None
            raise self._refusal(error.http_status_code, str(error.error_message), what) from None
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        except (UnicodeDecodeError, json.JSONDecodeError):
            raise self._no_registry("its answer is no JSON") from None
        except (KeyError, TypeError, AttributeError, ValueError):
            raise self._no_registry("its JSON is of something else") from None

    def _no_registry(self, why: str) -> SettingsInvalid:
        return SettingsInvalid(
            f"At {self.config.url} is another web server, and no schema registry: {why}",
            f"Correct the URL in {self.config.variable}: host, port, and the path, if the registry has one.",
        )

    def _refusal(self, status: int, message: str, what: str) -> TidegateError:
        said = self.config.redacted(message)
        where = f"The schema registry at {self.config.url}"
        if status in _NO_LOGIN:
            return SettingsInvalid(
                f"{where} refuses this login ({status})",
                f"Check basic.auth.user.info in {self.config.variable}, and the user's rights.",
            )
        if status in _PASSING or status >= _SERVER:
            return RegistryUnavailable(f"{where} answers {status}: {said}", "Run again, nothing is lost.")
        if status == _NOT_FOUND:
            return SchemaUnknown(
                f"{where} does not have {what}: {said}",
                f"Check that {self.config.variable} is the registry that messages are of.",
            )
        why = "it is not compatible with the versions before" if status == _CONFLICT else "it is not valid"
        return SchemaRefused(
            f"{where} refuses the schema for {what}, since {why}: {said}",
            "Change the columns or the schema so that consumers of the versions before can read it, or use "
            "another subject.",
        )

    def _unreachable(self, error: Exception) -> TidegateError:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLError):
            reason = getattr(cause, "verify_message", None) or cause.reason or type(cause).__name__
            return SettingsInvalid(
                f"The schema registry at {self.config.url} cannot be reached by TLS: {reason}",
                f"Check in {self.config.variable} that ssl.ca.location is who signed its certificate, and "
                "that it takes the client's.",
            )
        return RegistryUnavailable(
            f"The schema registry at {self.config.url} does not answer ({type(error).__name__})",
            f"Check that it runs, and that {self.config.variable} has its address; then run again, nothing "
            "is lost.",
        )
