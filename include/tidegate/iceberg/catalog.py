"""An Iceberg catalog: its properties, its secrets, and its errors as those of tidegate."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyiceberg import exceptions as iceberg
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tidegate.database_url import database_url, names_no_file
from tidegate.errors import SettingsInvalid, SinkRefused, SinkUnavailable
from tidegate.kafka.config import Secret, properties_in
from tidegate.postgres import connect_options
from tidegate.redaction import names_secret, redacted, secrets_of, shown_url

VARIABLE = "TIDEGATE_ICEBERG"
_URI, _WAREHOUSE, _NAME = "uri", "warehouse", "name"
_SECRETS = ("credential", "token")
_NAMES = (_URI, _WAREHOUSE, _NAME, *_SECRETS, "scope", "oauth2-server-uri", "prefix")
_FAMILIES = ("s3.", "gcs.", "adls.", "header.")
"""The beginnings of names that PyIceberg has for object stores, and for headers of requests."""
_FROM_ENVIRONMENT = {"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION"}
"""Property -> the variable of the lake's object store that it is by default."""
_REST = ("http://", "https://")
_EXAMPLE = '{"uri": "postgresql+psycopg://user:password@host/catalog", "warehouse": "s3://lake/tables"}'
_NO_BUCKET = re.compile("NO_SUCH_BUCKET")
_NO_ACCESS = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|"
    "HTTP status 40[13]"
)
_OF_STORE = {
    _NO_BUCKET: "Create the bucket, or name another one in the `warehouse` of {variable}, then run again.",
    _NO_ACCESS: "Correct `s3.access-key-id` and `s3.secret-access-key` in {variable} (without them, "
    "`AWS_ACCESS_KEY_ID` and the like), or let them list, read, write and delete there, then run again.",
}
"""Refusals in the errors of Arrow's file systems, which are all of one type -> what a person does."""
_TIMEOUT_S = 60.0
_DRIVERS = {"postgresql": "psycopg"}


@dataclass(frozen=True)
class CatalogConfig:
    """The properties of a catalog, by PyIceberg's names. They are hidden in `repr`, since many are secrets.

    `variable` is the setting that they come from; errors name it.
    """

    properties: Mapping[str, str] = field(repr=False)
    variable: str = VARIABLE

    @classmethod
    def parse(cls, text: str, variable: str = VARIABLE) -> CatalogConfig:
        """Return the configuration that a text describes: a URL, or a JSON object of properties.

        Raises SettingsInvalid, which repeats no value of the text.
        """
        fix = f"Write https://catalog.example.com or {_EXAMPLE}."
        properties = properties_in(text, _URI, f"{variable} is neither a URL", fix)
        for name in sorted(properties):
            if name not in _NAMES and not name.startswith(_FAMILIES):
                families = ", ".join(f"{family}*" for family in _FAMILIES)
                raise SettingsInvalid(
                    f"{variable} has {name[:40]}, which tidegate does not support",
                    f"Supported are: {', '.join(_NAMES)}, {families}.",
                )
        config = cls({name: Secret(content) for name, content in properties.items()}, variable)
        config._check(fix)
        return config

    def _check(self, fix: str) -> None:
        if _URI not in self.properties:
            raise SettingsInvalid(f"{self.variable} has no {_URI}", fix)
        if self.is_rest:
            if not urlsplit(self.properties[_URI]).hostname:
                raise SettingsInvalid(f"{self.variable} has no URL of a catalog", fix)
            return
        _database(self.properties[_URI], self.variable)
        if _WAREHOUSE not in self.properties:
            raise SettingsInvalid(
                f"{self.variable} is a SQL catalog without a warehouse, the folder of new tables",
                f"Write {_EXAMPLE}.",
            )

    @property
    def is_rest(self) -> bool:
        """Whether it is a REST catalog; if not, it is in a SQL database."""
        return self.properties[_URI].startswith(_REST)

    @property
    def place(self) -> str:
        """The catalog without secrets, for messages and lineage: `https://catalog.example.com`."""
        if not self.is_rest:
            return shown_url(
                _database(self.properties[_URI], self.variable).set(username=None, password=None)
            )
        parts = urlsplit(self.properties[_URI])
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def location(self, table: str) -> str | None:
        """Return the folder that a new table gets; None if the catalog decides."""
        if self.is_rest:
            return None
        namespace, _, name = table.rpartition(".")
        return f"{self.properties[_WAREHOUSE].rstrip('/')}/{namespace}/{name}"

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        """Open the catalog, and turn its errors into SinkUnavailable and SinkRefused, which this context
        manager raises.
        """
        with self.errors(), closing(self._catalog()) as catalog:
            yield catalog

    def _catalog(self) -> Catalog:
        # Not by `load_catalog`, which mixes in files and variables of the machine.
        name, properties = self.properties.get(_NAME, "default"), self._for_client()
        if self.is_rest:
            return PatientCatalog(name, timeout_s=_TIMEOUT_S, **properties)
        try:
            return SqlCatalog(name, **properties)
        except DBAPIError:
            # Of two that open a new catalog at once, one meets the tables that the other has created.
            return SqlCatalog(name, **properties)

    def _for_client(self) -> dict[str, str]:
        given = {
            name: os.environ[variable]
            for name, variable in _FROM_ENVIRONMENT.items()
            if variable in os.environ
        }
        properties = given | {name: str(text) for name, text in self.properties.items() if name != _NAME}
        if self.is_rest:
            return properties
        url = _database(self.properties[_URI], self.variable)
        options = {name: str(value) for name, value in connect_options(url).items() if value is not None}
        uri = url.update_query_dict(options).render_as_string(hide_password=False)
        return properties | {_URI: uri, "pool_pre_ping": "true"}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of the catalog and of its store into errors of the sink.

        Raises SinkRefused if the catalog answers that it may not or must not; SinkUnavailable otherwise.
        """
        # `from None`: errors of the clients contain statements, URLs and headers
        try:
            yield
        except self.failures as error:
            if isinstance(error, OSError):
                self._require_access(self.message(error))
            if self._is_refusal(error):
                raise SinkRefused(
                    f"The catalog in {self.variable} ({self.place}) refuses the request: "
                    f"{self.message(error)}",
                    f"Correct the address or the login in {self.variable}, its rights or the table, then run "
                    "again: nothing of the batch is in it yet.",
                ) from None
            raise SinkUnavailable(
                f"The catalog in {self.variable} ({self.place}), or the store of its tables, fails: "
                f"{self.message(error)}",
                "Check their addresses, and that both run and take connections; then run again, nothing is "
                "lost or sent twice.",
            ) from None

    def _require_access(self, message: str) -> None:
        """Raise SinkRefused if an error of the store of the tables says that a person has to act."""
        for refusal, remedy in _OF_STORE.items():
            if refusal.search(message):
                what = f"The store of the tables of {self.variable} refuses a request: {message}"
                raise SinkRefused(what, remedy.format(variable=self.variable)) from None

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """The errors of the catalog and its store. PyIceberg's own have no common base."""
        own = [error for error in vars(iceberg).values() if isinstance(error, type)]
        return (*own, SQLAlchemyError, OSError, ValueError, NotImplementedError)

    @staticmethod
    def _is_refusal(error: Exception) -> bool:
        """Return whether an error passes only when a person acts."""
        login = (iceberg.UnauthorizedError, iceberg.ForbiddenError, iceberg.OAuthError)
        request = (iceberg.BadRequestError, iceberg.ValidationError, iceberg.ValidationException)
        # PyIceberg has no class of its own for 404 and other answers that no retry changes
        is_other_answer = type(error) is iceberg.RESTError
        return is_other_answer or isinstance(error, (*login, *request, ValueError, NotImplementedError))

    def message(self, error: Exception) -> str:
        """Return the first line of an error's message without secrets."""
        text = str(getattr(error, "orig", None) or error)
        first = (text.splitlines() or [type(error).__name__])[0]
        return redacted(first, self._secrets)[:300]

    @property
    def _secrets(self) -> list[str]:
        texts = [text for name, text in self.properties.items() if name != _URI and names_secret(name)]
        texts += [text.partition(":")[2] for name, text in self.properties.items() if name == "credential"]
        if self.is_rest:
            texts.append(urlsplit(self.properties[_URI]).password or "")
        else:
            texts += secrets_of(_database(self.properties[_URI], self.variable))
        return [str(text) for text in texts if text]


def _database(url: str, variable: str) -> URL:
    """Return the URL of a SQL catalog's database. Raises SettingsInvalid."""
    parsed = database_url(url, _DRIVERS.get)
    kind = None if parsed is None else parsed.get_backend_name()
    if parsed is None or kind not in ("sqlite", "postgresql"):
        raise SettingsInvalid(
            f"{variable} has no URL of a catalog that can be used here", f"Write {_EXAMPLE}."
        )
    if kind == "sqlite" and names_no_file(parsed):
        raise SettingsInvalid(
            f"{variable} is a SQLite database in memory, which is lost after each change",
            "Name a file: sqlite:////path/to/catalog.db.",
        )
    return parsed


class PatientCatalog(RestCatalog):  # type: ignore[misc]  # see mypy.overrides
    """A REST catalog whose requests end after `timeout_s` without an answer.

    No request is repeated by itself: a commit that is sent twice is refused the second time, and would look
    as if it had failed.
    """

    def __init__(self, name: str, timeout_s: float, **properties: str) -> None:
        self._timeout_s = timeout_s
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Limited(self._timeout_s))
        return session


class _Limited(HTTPAdapter):  # type: ignore[misc]
    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        super().__init__(max_retries=0)

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        options["timeout"] = options.get("timeout") or self._timeout_s
        return super().send(request, **options)
