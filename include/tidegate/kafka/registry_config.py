"""The configuration of a schema registry: properties of Confluent's client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from tidegate.errors import SettingsInvalid
from tidegate.kafka.config import Secret, properties_in
from tidegate.kafka.connection import ssl_context
from tidegate.redaction import redacted

REGISTRY_VARIABLE = "TIDEGATE_REGISTRY"
TIMEOUT_SECONDS = 10.0
"""The timeout of a request. Confluent's client has none by default, and would wait for ever."""

_URL, _LOGIN, _KEY_PASSWORD = "url", "basic.auth.user.info", "ssl.key.password"
_TLS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", _KEY_PASSWORD)
_NAMES = (_URL, _LOGIN, *_TLS)
_SECRETS = frozenset({_LOGIN, _KEY_PASSWORD})
_SERIALIZER_NAMES = {
    "schema.registry.url": _URL,
    "schema.registry.basic.auth.user.info": _LOGIN,
    **{f"schema.registry.{name}": name for name in _TLS},
}
"""The names of the same properties in Kafka's serializers."""
_EXAMPLE = "https://registry.example.com"


@dataclass(frozen=True)
class RegistryConfig:
    """Properties by Confluent's names. They are hidden in `repr`, since they can contain a password.

    `url` can have several URLs, separated by commas, and contains no login. `variable` is the setting that
    the properties come from; errors name it.
    """

    properties: Mapping[str, str] = field(repr=False)
    variable: str = REGISTRY_VARIABLE

    @classmethod
    def parse(cls, text: str, variable: str = REGISTRY_VARIABLE) -> RegistryConfig:
        """Return the configuration that a text describes: a URL, or a JSON object of properties.

        Raises SettingsInvalid, which repeats nothing of the text.
        """
        fix = f'Write {_EXAMPLE}, or {{"url": …}}.'
        return cls.from_dict(properties_in(text, _URL, f"{variable} is neither a URL", fix), variable)

    @classmethod
    def from_dict(cls, properties: Mapping[str, Any], variable: str = REGISTRY_VARIABLE) -> RegistryConfig:
        """Return the configuration with these properties, by Confluent's names or those of Kafka's
        serializers.

        Raises SettingsInvalid if a property is unknown, if the URL is not valid, or if certificates and keys
        cannot be used.
        """
        texts = {_SERIALIZER_NAMES.get(name, name): str(value) for name, value in properties.items()}
        for name in sorted(texts.keys() - set(_NAMES)):
            raise SettingsInvalid(
                f"{variable} has {name}, which tidegate does not support",
                f"Supported are: {', '.join(_NAMES)}.",
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
        """The URL of the registry, without a login; several are separated by commas."""
        return self.properties[_URL]

    @property
    def secrets(self) -> list[str]:
        """The texts that must not appear in messages: passwords, and the login as it is written."""
        login = self.properties.get(_LOGIN, "")
        password = login.partition(":")[2]
        return [text for text in (str(login), password, str(self.properties.get(_KEY_PASSWORD, ""))) if text]

    def redacted(self, text: str) -> str:
        """Return a message with the secrets replaced by `***`."""
        return redacted(text, self.secrets)

    def for_client(self) -> dict[str, Any]:
        """Return options for Confluent's client, with retries that give up in less than a minute."""
        options = {name: str(text) for name, text in self.properties.items()}
        if "ssl.certificate.location" in options:
            # Never None: for an encrypted key Python's ssl would ask for the password at the terminal.
            options.setdefault(_KEY_PASSWORD, "")
        waits = {"max.retries": 2, "retries.wait.ms": 200, "retries.max.wait.ms": 1_000}
        return options | waits | {"timeout": TIMEOUT_SECONDS}


def _without_login(texts: Mapping[str, str], variable: str) -> dict[str, str]:
    """Return the properties with a login of the URL moved to `basic.auth.user.info`."""
    urls = [_parsed(url, variable) for url in texts.get(_URL, "").split(",")]
    logins = {f"{unquote(url.username)}:{unquote(url.password or '')}" for url in urls if url.username}
    if len(logins) + (_LOGIN in texts) > 1:
        raise SettingsInvalid(f"{variable} has two logins", f"Write one, as {_LOGIN}: user:password.")
    bare = (urlunsplit(url._replace(netloc=url.netloc.rpartition("@")[2])).rstrip("/") for url in urls)
    return {**texts, _URL: ",".join(bare), **({_LOGIN: login} if (login := "".join(logins)) else {})}


def _parsed(url: str, variable: str) -> SplitResult:
    try:
        parsed = urlsplit(url.strip())
        if parsed.scheme in ("http", "https") and parsed.hostname and parsed.port != 0:
            return parsed
    except ValueError:  # such as an invalid port; the text can contain a password, so it is not repeated
        pass
    raise SettingsInvalid(f"{variable} has no URL of a schema registry", f"Write {_EXAMPLE}.")
