"""How a schema registry is reached: the properties of Confluent's client, by their names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from tidegate.broker.config import Secret
from tidegate.broker.tls import ssl_context
from tidegate.errors import SettingsInvalid
from tidegate.redaction import redacted

REGISTRY_VARIABLE = "TIDEGATE_REGISTRY"
TIMEOUT_SECONDS = 10.0
"""For which an answer is waited. Confluent's client has none of its own, and waits for ever."""

_URL, _LOGIN, _KEY_PASSWORD = "url", "basic.auth.user.info", "ssl.key.password"
_TLS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", _KEY_PASSWORD)
_NAMES = (_URL, _LOGIN, *_TLS)
_SECRETS = frozenset({_LOGIN, _KEY_PASSWORD})
_OTHERS = {
    "schema.registry.url": _URL,
    "schema.registry.basic.auth.user.info": _LOGIN,
    **{f"schema.registry.{name}": name for name in _TLS},
}
"""What Kafka's serialisers call the same."""
_EXAMPLE = "https://registry.example.com"


@dataclass(frozen=True)
class RegistryConfig:
    """Properties by Confluent's names. Hidden in `repr`: they may hold a password.

    `url` has several with commas, and no login in it. `variable` is the setting that they are from: errors
    name it.
    """

    properties: Mapping[str, str] = field(repr=False)
    variable: str = REGISTRY_VARIABLE

    @classmethod
    def parse(cls, text: str, variable: str = REGISTRY_VARIABLE) -> RegistryConfig:
        """From a URL or a JSON object. Raises SettingsInvalid, which repeats nothing of the text."""
        if not text.lstrip().startswith("{"):
            return cls.of({_URL: text.strip()}, variable)
        try:
            return cls.of(json.loads(text), variable)
        except json.JSONDecodeError:
            raise SettingsInvalid(
                f"{variable} is neither a URL nor a JSON object", f'Write {_EXAMPLE}, or {{"url": …}}.'
            ) from None

    @classmethod
    def of(cls, properties: Mapping[str, Any], variable: str = REGISTRY_VARIABLE) -> RegistryConfig:
        """From properties by Confluent's names, or those of Kafka's serialisers. Raises SettingsInvalid for
        one that is not known, for a URL that is none, for certificates and keys that cannot be used.
        """
        texts = {_OTHERS.get(name, name): str(value) for name, value in properties.items()}
        for name in sorted(texts.keys() - set(_NAMES)):
            raise SettingsInvalid(
                f"{variable} has {name}, which tidegate does not pass on", f"Known are: {', '.join(_NAMES)}."
            )
        texts = _without_login(texts, variable)
        if ":" not in texts.get(_LOGIN, ":"):
            raise SettingsInvalid(f"{variable} has a {_LOGIN} without a colon", "Write user:password.")
        config = cls(
            {name: Secret(text) if name in _SECRETS else text for name, text in texts.items()}, variable
        )
        if config.url.startswith("https"):
            ssl_context(config.properties, variable)
        return config

    @property
    def url(self) -> str:
        """Where it is; several with commas. Without a login."""
        return self.properties[_URL]

    @property
    def secrets(self) -> list[str]:
        """The texts that nobody is to see: passwords, and the login as it is written."""
        login = self.properties.get(_LOGIN, "")
        password = login.partition(":")[2]
        return [text for text in (str(login), password, str(self.properties.get(_KEY_PASSWORD, ""))) if text]

    def redacted(self, text: str) -> str:
        """Somebody's words, without what nobody is to see."""
        return redacted(text, self.secrets)

    def for_client(self) -> dict[str, Any]:
        """Options for Confluent's client, which is to give up in less than a minute."""
        options = {name: str(text) for name, text in self.properties.items()}
        if "ssl.certificate.location" in options:
            # never None: for an encrypted key Python would ask whoever sits at the terminal
            options.setdefault(_KEY_PASSWORD, "")
        waits = {"max.retries": 2, "retries.wait.ms": 200, "retries.max.wait.ms": 1_000}
        return options | waits | {"timeout": TIMEOUT_SECONDS}


def _without_login(texts: Mapping[str, str], variable: str) -> dict[str, str]:
    """With a login that stands in the URL taken out of it."""
    found = [_parsed(url, variable) for url in texts.get(_URL, "").split(",")]
    logins = {f"{unquote(url.username)}:{unquote(url.password or '')}" for url in found if url.username}
    if len(logins) + (_LOGIN in texts) > 1:
        raise SettingsInvalid(f"{variable} has two logins", f"Write one, as {_LOGIN}: user:password.")
    bare = (urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2])).rstrip("/") for url in found)
    return {**texts, _URL: ",".join(bare), **({_LOGIN: login} if (login := "".join(logins)) else {})}


def _parsed(url: str, variable: str) -> SplitResult:
    try:
        parsed = urlsplit(url.strip())
        if parsed.scheme in ("http", "https") and parsed.hostname and parsed.port != 0:
            return parsed
    except ValueError:  # a port that is none, say: the text may hold a password, and is not repeated
        pass
    raise SettingsInvalid(f"{variable} has no URL of a schema registry", f"Write {_EXAMPLE}.")
