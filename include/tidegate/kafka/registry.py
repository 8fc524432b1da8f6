"""Access to a schema registry, through Confluent's client, which starts no threads."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tidegate.errors import (
    RegistryUnavailable,
    SchemaRefused,
    SchemaUnknown,
    SettingsInvalid,
    TidegateError,
)
from tidegate.formats.schemas import RecordSchema, SchemaKind
from tidegate.kafka.registry_config import RegistryConfig

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

_AVRO: SchemaKind = "AVRO"
_PASSING = (408, 429)
_NO_LOGIN = (401, 403)
_CONFLICT, _NOT_FOUND, _SERVER = 409, 404, 500
_OF_ANYBODY = (400, _NOT_FOUND, 405, 406, 415)
_NO_CODES = (None, -1)
"""The error code of a registry is missing: another web server answers. Confluent's client then has -1."""


@dataclass(frozen=True)
class SubjectVersion:
    """A version of a subject: the schema, and its id, which messages contain."""

    subject: str
    version: int
    id: int
    schema: RecordSchema


def _numbers(versions: Any) -> tuple[int, ...]:
    """Return the numbers of versions. Raises TypeError if the answer is not a list of numbers."""
    if not isinstance(versions, list) or not all(isinstance(version, int) for version in versions):
        raise TypeError(type(versions).__name__)
    return tuple(sorted(versions))


class SchemaRegistry:
    """A schema registry.

    Each method raises RegistryUnavailable if it does not answer, and SettingsInvalid if it refuses the login
    or is not a registry. Schemas are cached, since an id never changes its meaning. As a context manager it
    closes its connections.

    Example:
        with SchemaRegistry(settings.registry()) as registry:
            schema = registry.version("orders-value").schema
    """

    def __init__(self, config: RegistryConfig) -> None:
        self.config = config

    @cached_property
    def _client(self) -> Any:  # the client's types allow None everywhere
        from confluent_kafka.schema_registry import SchemaRegistryClient  # late: only an extra installs it

        return SchemaRegistryClient(self.config.for_client())

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        if "_client" in self.__dict__:
            self._client.close()

    def schema(self, schema_id: int) -> RecordSchema:
        """Return the schema with the id that messages contain. Raises SchemaUnknown."""
        with self._asked(f"schema {schema_id}"):
            return self._read(self._client.get_schema(schema_id))

    def versions(self, subject: str, with_deleted: bool = False) -> tuple[int, ...]:
        """Return the numbers of a subject's versions in ascending order; empty if the subject does not exist.

        Args:
            with_deleted: Include deleted versions, which messages can still refer to.
        """
        try:
            with self._asked(f"subject {subject}"):
                return _numbers(self._client.get_versions(subject, deleted=with_deleted))
        except SchemaUnknown:
            return ()

    def version(self, subject: str, number: int | None = None) -> SubjectVersion:
        """Return a version of a subject, even a deleted one; without `number` the latest, which is never
        cached.

        Raises SchemaUnknown.
        """
        what = f"version {number or 'latest'} of subject {subject}"
        with self._asked(what):
            if number is None:
                self._client.clear_latest_caches()
                answer = self._client.get_latest_version(subject)
            else:
                answer = self._client.get_version(subject, number, deleted=True)
            return SubjectVersion(subject, answer.version, answer.schema_id, self._read(answer.schema))

    def lookup(self, subject: str, schema: RecordSchema) -> int | None:
        """Return the id of a schema in a subject; None if the subject does not have it."""
        try:
            with self._asked(f"subject {subject}"):
                return int(self._client.lookup_schema(subject, self._written(schema)).schema_id)
        except SchemaUnknown:
            return None

    def register(self, subject: str, schema: RecordSchema) -> int:
        """Register a schema in a subject, and return its id. A schema that exists keeps its id.

        Imported schemas become subjects of their own names. Raises SchemaRefused if the rules of the subject
        forbid the schema.
        """
        with self._asked(f"subject {subject}"):
            written = self._written(schema, register=True)
            return int(self._client.register_schema(subject, written))

    def is_compatible(self, subject: str, schema: RecordSchema) -> bool:
        """Return whether a subject would accept a schema, by its compatibility rule.

        It is True if an import of the schema is not registered: a registry cannot compare such a schema, and
        `register` decides. Raises SchemaRefused if the schema is not valid.
        """
        try:
            with self._asked(f"subject {subject}"):
                written = self._written(schema)
        except SchemaUnknown:
            return True
        with self._asked(f"subject {subject}"):
            return bool(self._client.test_compatibility_all_versions(subject, written))

    def _read(self, schema: Schema) -> RecordSchema:
        if not schema.schema_str:
            raise TypeError("an answer without a schema")
        imports: dict[str, str] = {}
        self._follow(schema.references or [], imports)
        kind: Any = schema.schema_type or _AVRO
        return RecordSchema(kind, schema.schema_str, imports)

    def _follow(self, references: list[Any], imports: dict[str, str]) -> None:
        """Collect the schemas that `references` refer to, each after the ones that it refers to itself."""
        for reference in references:
            # Schemas can share an import; each is needed once, before the first schema that refers to it.
            if reference.name not in imports:
                # A deleted version still has messages, and its references may be deleted, too.
                schema = self._client.get_version(reference.subject, reference.version, deleted=True).schema
                self._follow(schema.references or [], imports)
                imports[reference.name] = schema.schema_str

    def _written(self, schema: RecordSchema, register: bool = False) -> Schema:
        """Return the schema in the client's form. Imported schemas are references to subjects of the same
        names.
        """
        from confluent_kafka.schema_registry import Schema, SchemaReference

        references: list[SchemaReference] = []
        for name, text in schema.imports.items():
            imported = Schema(text, schema.kind, list(references))
            # An import must have a version of its own before a schema can refer to it.
            if register:
                self._client.register_schema(name, imported)
            number = self._client.lookup_schema(name, imported).version
            references.append(SchemaReference(name, name, number))
        return Schema(schema.text, schema.kind, references)

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Translate errors of the client into tidegate's errors."""
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
            raise self._no_registry("its answer is not JSON") from None
        except (KeyError, TypeError, AttributeError, ValueError):
            raise self._no_registry("its JSON is not that of a registry") from None

    def _no_registry(self, why: str) -> SettingsInvalid:
        return SettingsInvalid(
            f"At {self.config.url} is another web server, and no schema registry: {why}",
            f"Correct the URL in {self.config.variable}: host, port, and the path, if the registry has one.",
        )

    def _refusal(self, status: int, message: str, what: str) -> TidegateError:
        reason = self.config.redacted(message)
        where = f"The schema registry at {self.config.url}"
        if status in _NO_LOGIN:
            return SettingsInvalid(
                f"{where} refuses this login ({status})",
                f"Check basic.auth.user.info in {self.config.variable}, and the user's rights.",
            )
        if status in _PASSING or status >= _SERVER:
            return RegistryUnavailable(f"{where} answers {status}: {reason}", "Run again, nothing is lost.")
        if status == _NOT_FOUND:
            return SchemaUnknown(
                f"{where} does not have {what}: {reason}",
                f"Check that {self.config.variable} is the registry that messages are of.",
            )
        why = "it is not compatible with the versions before" if status == _CONFLICT else "it is not valid"
        return SchemaRefused(
            f"{where} refuses the schema for {what}, since {why}: {reason}",
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
