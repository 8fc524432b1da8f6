"""The configuration of a server that sinks send requests to: its URL, the secrets of requests, and how long
they may take.
"""

from __future__ import annotations

import logging
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

import httpx2 as httpx

from tidegate.errors import SettingsInvalid
from tidegate.kafka.config import Secret, properties_in
from tidegate.kafka.connection import ssl_context
from tidegate.redaction import redacted

_SHOWS_ALL = ("httpx2", "httpcore2")
"""Loggers that at the levels INFO and DEBUG show URLs and headers, which contain secrets."""
for _logger in map(logging.getLogger, _SHOWS_ALL):
    _logger.setLevel(max(_logger.level, logging.WARNING))

VARIABLE = "TIDEGATE_HTTP"
_URL, _LOGIN, _TOKEN = "url", "basic.auth.user.info", "bearer.auth.token"
_KEY_PASSWORD, _PROXY, _TIMEOUT, _HEADERS = "ssl.key.password", "proxy.url", "timeout.seconds", "headers"
_TLS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", _KEY_PASSWORD)
_NAMES = (_URL, _LOGIN, _TOKEN, _HEADERS, *_TLS, _PROXY, _TIMEOUT)
_SECRETS = frozenset({_URL, _LOGIN, _TOKEN, _KEY_PASSWORD, _PROXY})
_EXAMPLE = "https://server.example.com"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = frozenset(
    {"content-type", "content-length", "transfer-encoding", "host", "idempotency-key", "authorization"}
)
_DEFAULT_TIMEOUT = "30"
_LONGEST_TIMEOUT = 600.0
_PORTS = {"http": 80, "https": 443}
_SHOWN = 300


@dataclass(frozen=True)
class HttpConfig:
    """The properties of an endpoint. They are hidden in `repr`, since nearly each can be a secret: even the
    path of a URL often is.

    Args:
        properties: Name -> text.
        headers: Header -> content, which goes out with each request.
        variable: The setting that they come from; errors name it.
    """

    properties: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    variable: str = VARIABLE

    @classmethod
    def parse(cls, text: str, variable: str = VARIABLE) -> HttpConfig:
        """Return the configuration that a text describes: a URL, or a JSON object of properties.

        Raises SettingsInvalid, which repeats no value of the text.
        """
        fix = f'Write {_EXAMPLE}, or {{"url": …}}.'
        return cls.from_dict(properties_in(text, _URL, f"{variable} is neither a URL", fix), variable)

    @classmethod
    def from_dict(cls, properties: Mapping[str, Any], variable: str) -> HttpConfig:
        """Return the configuration with these properties. Raises SettingsInvalid if one cannot be used."""
        for name in sorted(properties.keys() - set(_NAMES)):
            raise SettingsInvalid(
                f"{variable} has {name}, which tidegate does not support",
                f"Supported are: {', '.join(_NAMES)}.",
            )
        headers = _checked_headers(properties.get(_HEADERS, {}), variable)
        texts = {name: str(value) for name, value in properties.items() if name != _HEADERS}
        texts = _without_login(texts, variable)
        config = cls(
            {name: Secret(text) if name in _SECRETS else text for name, text in texts.items()},
            {name: Secret(text) for name, text in headers.items()},
            variable,
        )
        config._check()
        return config

    def _check(self) -> None:
        """Raise SettingsInvalid for properties that cannot be used, before a batch is planned."""
        if ":" not in self.properties.get(_LOGIN, ":"):
            raise SettingsInvalid(f"{self.variable} has a {_LOGIN} without a colon", "Write user:password.")
        if _LOGIN in self.properties and _TOKEN in self.properties:
            raise SettingsInvalid(f"{self.variable} has a login and a token", f"Write {_LOGIN} or {_TOKEN}.")
        if (
            not self.properties.get(_TOKEN, "x").isascii()
            or not self.properties.get(_TOKEN, "x").isprintable()
        ):
            raise SettingsInvalid(
                f"{self.variable} has a {_TOKEN} that no header can have", "Write it again."
            )
        if _PROXY in self.properties:
            _parsed(self.properties[_PROXY], f"{self.variable} has no URL of a proxy in {_PROXY}")
        if not 0 < self.timeout <= _LONGEST_TIMEOUT:
            raise SettingsInvalid(
                f"{self.variable}: {_TIMEOUT} is not a number of seconds up to {_LONGEST_TIMEOUT:.0f}",
                f"Write for example {_DEFAULT_TIMEOUT}.",
            )
        if self.tls is None and any(name in self.properties for name in _TLS):
            raise SettingsInvalid(
                f"{self.variable} has certificates for a URL without TLS", "Write https://…"
            )

    def url(self, path: str | None) -> str:
        """Return the URL that requests for a sink's path go to. A query of the connection's URL stays."""
        base = urlsplit(self.properties[_URL])
        if path is not None:
            base = base._replace(path=f"{base.path.rstrip('/')}/{quote(path)}")
        return urlunsplit(base)

    @property
    def place(self) -> str:
        """Scheme, host and port, which messages may show: `https://hooks.example.com`."""
        return urlunsplit(urlsplit(self.properties[_URL])._replace(path="", query="", fragment=""))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are connected to: those of the proxy, if there is one."""
        parts = urlsplit(self.properties.get(_PROXY) or self.properties[_URL])
        return parts.hostname or "", parts.port or _PORTS[parts.scheme]

    @property
    def host(self) -> str:
        """The host whose certificate is checked."""
        return urlsplit(self.properties[_URL]).hostname or ""

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for a URL without TLS. Raises SettingsInvalid."""
        if urlsplit(self.properties[_URL]).scheme != "https":
            return None
        return ssl_context(self.properties, self.variable)

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password of basic authentication; None without."""
        if _LOGIN not in self.properties:
            return None
        user, _, password = self.properties[_LOGIN].partition(":")
        return str(user), str(password)

    @property
    def token(self) -> str | None:
        """The bearer token; None without."""
        return self.properties.get(_TOKEN)

    @property
    def proxy(self) -> str | None:
        """The URL of the proxy; None without."""
        return self.properties.get(_PROXY)

    @property
    def timeout(self) -> float:
        """The seconds that connecting, and each read and write, may take; -1 if it is no number."""
        try:
            return float(self.properties.get(_TIMEOUT, _DEFAULT_TIMEOUT))
        except ValueError:
            return -1.0

    def client(self) -> httpx.Client:
        """Return a client with the secrets in place, which connects with the first request."""
        headers = {"user-agent": "tidegate", "accept-encoding": "identity", **self.headers}
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return httpx.Client(
            headers=headers,
            auth=self.login,
            # Without TLS nobody needs to be trusted; True would load the authorities of the machine.
            verify=self.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            timeout=self.timeout,
            proxy=self.proxy,
            follow_redirects=False,
            trust_env=False,  # else a variable of the environment could lead secrets to another host
        )

    @property
    def exposure(self) -> str | None:
        """A warning if a secret would go over the network unencrypted."""
        if self.tls is not None or not (self.login or self.token or self.headers):
            return None
        return (
            f"The secrets in {self.variable} go to {self.place} without TLS: everyone on the way can read "
            "them."
        )

    def shown(self, text: str) -> str:
        """Return the beginning of a text as one line, without secrets that it repeats."""
        hidden = self.redacted(text)
        return " ".join("".join(char if char.isprintable() else " " for char in hidden).split())[:_SHOWN]

    def without_tls(self, error: BaseException) -> SettingsInvalid | None:
        """Return the error for a server whose certificate is refused; None if an error has another cause."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
            cause = cause.__cause__ or cause.__context__
        return None if cause is None else self.tls_refused(cause)

    def tls_refused(self, error: ssl.SSLError) -> SettingsInvalid:
        """Return the error for a server that cannot be reached by TLS."""
        reason = getattr(error, "verify_message", None) or error.reason or type(error).__name__
        return SettingsInvalid(
            f"The endpoint {self.place} cannot be reached by TLS: {reason}",
            f"Check in {self.variable} that the port takes TLS, that ssl.ca.location is who signed "
            "its certificate, and that it takes the client's.",
        )

    def redacted(self, text: str) -> str:
        """Return a message with the secrets replaced by `***`."""
        return redacted(text, self._secrets)

    @property
    def _secrets(self) -> list[str]:
        """The texts that must not appear in messages, also as they are written in a URL or a header."""
        login = self.properties.get(_LOGIN, "")
        parts = urlsplit(self.properties[_URL])
        proxy = urlsplit(self.properties.get(_PROXY, ""))
        texts = [self.properties.get(name, "") for name in (_TOKEN, _KEY_PASSWORD)]
        texts += [login, login.partition(":")[2], proxy.password or "", *self.headers.values()]
        texts.append(b64encode(login.encode()).decode())
        # A short part such as `v1` is no secret, and would hide parts of words.
        texts += [text for text in re.split("[/?&=]", f"{parts.path}?{parts.query}") if len(text) > 8]
        return [str(text) for text in texts if text]


def _checked_headers(headers: Any, variable: str) -> dict[str, str]:
    if not isinstance(headers, dict):
        raise SettingsInvalid(f"{variable} has headers that are no object", 'Write {"x-api-key": "…"}.')
    for name, content in headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise SettingsInvalid(
                f"{variable} has the header {name[:40]!r}, which it cannot set",
                f"Leave it out; a login is {_LOGIN} or {_TOKEN}.",
            )
        if not isinstance(content, str) or not content.isascii() or not content.isprintable():
            raise SettingsInvalid(
                f"{variable} has content for the header {name} that no header can have",
                "Write one line of ASCII, in quotes.",
            )
    return dict(headers)


def _without_login(texts: Mapping[str, str], variable: str) -> dict[str, str]:
    """Return the properties with a login of the URL moved to `basic.auth.user.info`."""
    url = _parsed(texts.get(_URL, ""), f"{variable} has no URL of an endpoint")
    bare = urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2], fragment=""))
    if url.username is None:
        return {**texts, _URL: bare}
    if _LOGIN in texts:
        raise SettingsInvalid(f"{variable} has two logins", f"Write one, as {_LOGIN}: user:password.")
    return {**texts, _URL: bare, _LOGIN: f"{unquote(url.username)}:{unquote(url.password or '')}"}


def _parsed(url: str, what: str) -> SplitResult:
    try:
        parsed = urlsplit(url.strip())
        if parsed.scheme in _PORTS and parsed.hostname and parsed.port != 0:
            return parsed
    except ValueError:  # such as an invalid port; the text can contain a password, so it is not repeated
        pass
    raise SettingsInvalid(what, f"Write {_EXAMPLE}.")
