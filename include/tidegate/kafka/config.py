"""The configuration of a Kafka cluster, translated for both clients: kafka-python and librdkafka.

Tokens for OAUTHBEARER: a Python function returns them, and both clients use the same ones. A function that
returns tokens is `module:function`, with the signature of confluent-kafka's `oauth_cb`: it takes the text of
the property `sasl.oauthbearer.config`, and returns (token, epoch seconds at which it expires) or (token,
expiry, principal, dict of extensions).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from threading import Lock
from typing import Any

from tidegate.errors import BrokerUnavailable, SettingsInvalid
from tidegate.kafka.properties import (
    CALLBACK,
    DELIVERY_TIMEOUT,
    PROPERTIES,
    TRANSACTION_BYTES,
    TRANSACTION_TIMEOUT,
    canonical,
    checked,
    uses_login,
    uses_tls,
    uses_tokens,
)
from tidegate.redaction import redacted

_USED_UP = 0.8
"""The part of a token's life after which the next one is requested, as in librdkafka and Java."""


@dataclass(frozen=True)
class Token:
    """A token, the time at which it expires (epoch seconds), principal and extensions."""

    text: str = field(repr=False)
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


class TokenSource:
    """The tokens of a function. Each is used until most of its life is over."""

    def __init__(self, function: str, config: str) -> None:
        self._function = function
        self._config = config
        self._lock = Lock()
        self._token: Token | None = None
        self._renewed_after = 0.0

    def token(self) -> Token:
        """Return a token that is still valid for a while.

        Raises SettingsInvalid if the function does not exist or returns something else, BrokerUnavailable if
        it fails.
        """
        with self._lock:
            if self._token is None or time.time() > self._renewed_after:
                # Before the call: a slow function must not make the token look younger than it is.
                began = time.time()
                self._token = self._next()
                self._renewed_after = began + _USED_UP * (self._token.expires - began)
            return self._token

    def for_librdkafka(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        """Return a token in the form of confluent-kafka's `oauth_cb`."""
        token = self.token()
        return token.text, token.expires, token.principal, dict(token.extensions)

    def for_python(self) -> Any:
        """Return a token provider for kafka-python."""
        from kafka.net.sasl.oauth import AbstractTokenProvider  # late: Spark's workers do without that client

        source = self

        class Provider(AbstractTokenProvider):  # type: ignore[misc]  # it is not typed
            def token(self) -> str:
                return source.token().text

            def extensions(self) -> dict[str, str]:
                return dict(source.token().extensions)

        return Provider()

    def _next(self) -> Token:
        function = self._resolved()
        try:
            answer = function(self._config)
        except Exception as error:
            # The error's text can contain the function's argument, which is secret: do not repeat it.
            raise BrokerUnavailable(
                f"{self._function}, which gives tokens for Kafka, failed: {type(error).__name__}",
                "Check who gives the tokens, and call the function by hand; then run again, nothing is lost.",
            ) from None
        return self._parsed(answer)

    def _resolved(self) -> Any:
        module, _, name = self._function.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise SettingsInvalid(
                f"There is no function {self._function}, which is to give tokens for Kafka: {error}",
                f"Correct {CALLBACK}. The module has to be where Python finds it, on Spark's workers, too.",
            ) from error

    def _parsed(self, answer: Any) -> Token:
        match answer:
            case (str(text), int() | float() as expires, *optional) if text and expires > time.time():
                principal, extensions, *_ = (*optional, None, None)
                return Token(text, float(expires), principal or "", extensions or {})
        raise SettingsInvalid(
            f"The function {self._function} gave no token that is still good",
            "It has to return (token, epoch seconds at which it expires), as `oauth_cb` of confluent-kafka.",
        )


@lru_cache
def token_source(function: str, config: str) -> TokenSource:
    """Return the token source of this process, so that all of its clients share a token."""
    return TokenSource(function, config)


DEFAULT_VARIABLE = "TIDEGATE_KAFKA"
PROGRESS_TOPIC = "tidegate-progress"
PROGRESS_PARTITIONS = 16
# Kafka's default max.message.bytes is 1 MiB, batch overhead included.
MAX_RECORD_BYTES = 1_000_000


TRANSACTION_TIMEOUT_MS = 60_000
_TRANSACTION_BYTES = 8 * 1024 * 1024
_DELIVERY_SHARE = 2 / 3
"""The part of a transaction's timeout in which its messages must be delivered; the rest is for its commit."""


@dataclass(frozen=True)
class Transactions:
    """The limits of a publication's transactions.

    Args:
        timeout_ms: after this time the broker aborts a transaction.
        delivery_ms: the time for the delivery of a transaction's messages.
        most_bytes: the largest size of a transaction.
    """

    timeout_ms: int
    delivery_ms: int
    most_bytes: int

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Transactions:
        """Return the limits that a cluster's properties set, with defaults for those that are missing.

        Example: `Transactions.parse({})` is `Transactions(60_000, 40_000, 8 * 1024 * 1024)`.
        """
        timeout_ms = int(properties.get(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS))
        delivery_ms = properties.get(DELIVERY_TIMEOUT, timeout_ms * _DELIVERY_SHARE)
        most_bytes = properties.get(TRANSACTION_BYTES, _TRANSACTION_BYTES)
        return cls(timeout_ms, int(delivery_ms), int(most_bytes))


_SHOWS_ALL = ("kafka.net.connection", "kafka.protocol.parser", "py4j")
"""Loggers that at level DEBUG show everything that is sent: passwords and tokens to Kafka, and, in base64,
the configuration that Spark's JVM gets for its workers.
"""


class Secret(str):
    """A text whose `repr` is hidden. kafka-python logs its configuration, passwords included."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def properties_in(text: str, single: str, what: str, fix: str) -> Mapping[str, Any]:
    """Return the properties in the text of a setting: those of a JSON object, or else one, of which the text
    is the content.

    Args:
        single: the name of that one.
        what: the beginning of the message if the text is neither, without ` nor a JSON object`.
        fix: what to do then.

    Raises SettingsInvalid.
    """
    if not text.lstrip().startswith("{"):
        return {single: text.strip()}
    try:
        properties: Mapping[str, Any] = json.loads(text)
    except json.JSONDecodeError:
        # The text can contain a password, so neither the message nor the cause repeats it.
        raise SettingsInvalid(f"{what} nor a JSON object", fix) from None
    return properties


def _keep_from_showing_all() -> None:
    for logger in map(logging.getLogger, _SHOWS_ALL):
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)


@dataclass(frozen=True)
class KafkaConfig:
    """Client properties, by the names of `PROPERTIES`. They are hidden in `repr`, since they can contain a
    password.

    `variable` is the setting that they come from; errors name it.
    """

    properties: Mapping[str, str] = field(repr=False)
    variable: str = DEFAULT_VARIABLE

    @classmethod
    def parse(cls, text: str, variable: str = DEFAULT_VARIABLE) -> KafkaConfig:
        """Return the configuration that a text describes: `host:port,host:port`, or a JSON object of
        properties.

        Raises SettingsInvalid if it is neither, or as `from_dict`.

        Example: `KafkaConfig.parse("broker:9092").servers` is `broker:9092`.
        """
        fix = 'Write broker:9092, or {"bootstrap.servers": "broker:9092", …}.'
        return cls.from_dict(
            properties_in(text, "bootstrap.servers", f"{variable} is neither host:port", fix), variable
        )

    @classmethod
    def from_dict(cls, properties: Mapping[str, Any], variable: str = DEFAULT_VARIABLE) -> KafkaConfig:
        """Return the configuration with these properties, by Java's names or librdkafka's.

        Raises SettingsInvalid if a client lacks a property, if properties contradict each other, or if
        bootstrap.servers is missing.
        """
        texts = checked(canonical(properties, variable), variable)
        if not texts.get("bootstrap.servers"):
            raise SettingsInvalid(f"{variable} has no bootstrap.servers", "Add it: host:port.")
        config = cls(
            {name: Secret(text) if PROPERTIES[name].is_secret else text for name, text in texts.items()},
            variable,
        )
        if config.secrets or uses_login(texts):
            _keep_from_showing_all()
        return config

    @property
    def servers(self) -> str:
        """The bootstrap servers, separated by commas."""
        return self.properties["bootstrap.servers"]

    @property
    def secrets(self) -> list[str]:
        """The values that must not appear in messages or logs."""
        return [text for name, text in self.properties.items() if PROPERTIES[name].is_secret]

    @property
    def transactions(self) -> Transactions:
        """The limits of a publication's transactions."""
        return Transactions.parse(self.properties)

    def redacted(self, text: str) -> str:
        """Return a message of a client with the secrets replaced by `***`."""
        return redacted(text, self.secrets)

    def for_python(self) -> dict[str, Any]:
        """Return keyword arguments for kafka-python's clients.

        Raises SettingsInvalid if certificates or keys cannot be used, and what `TokenSource.token` raises.
        """
        rows = [(PROPERTIES[name], text) for name, text in self.properties.items()]
        options = {row.python: row.read(text) for row, text in rows if row.python is not None}
        if uses_tls(self.properties):
            # Late: `connection` imports this module, and librdkafka's workers do not need it.
            from tidegate.kafka.connection import ssl_context

            options["ssl_context"] = ssl_context(self.properties, self.variable)
        if uses_tokens(self.properties):
            options["sasl_oauth_token_provider"] = self._tokens().for_python()
        return options

    def for_librdkafka(self) -> dict[str, Any]:
        """Return options for librdkafka's clients. Raises what `TokenSource.token` raises."""
        rows = [(PROPERTIES[name], text) for name, text in self.properties.items()]
        options: dict[str, Any] = {row.librdkafka: text for row, text in rows if row.librdkafka is not None}
        if uses_tokens(self.properties):
            options["oauth_cb"] = self._tokens().for_librdkafka
        return options

    def _tokens(self) -> TokenSource:
        """Return the token source of the callback, after it has given a first token.

        Without this check librdkafka waits ten seconds for the first token, and then hides the reason.
        """
        source = token_source(self.properties[CALLBACK], self.properties.get("sasl.oauthbearer.config", ""))
        source.token()
        return source
