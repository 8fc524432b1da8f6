"""How a Kafka cluster is reached, as each of the clients wants to know it: kafka-python and librdkafka."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.broker.properties import (
    CALLBACK,
    DELIVERY_TIMEOUT,
    PROPERTIES,
    TRANSACTION_BYTES,
    TRANSACTION_TIMEOUT,
    canonical,
)
from tidegate.broker.security import checked, uses_login, uses_tls, uses_tokens
from tidegate.broker.tls import ssl_context
from tidegate.broker.tokens import TokenSource, token_source
from tidegate.errors import SettingsInvalid
from tidegate.redaction import redacted

DEFAULT_VARIABLE = "TIDEGATE_KAFKA"
PROGRESS_TOPIC = "tidegate-progress"
PROGRESS_PARTITIONS = 16
# Kafka's default max.message.bytes is 1 MiB, batch overhead included.
MAX_RECORD_BYTES = 1_000_000


TRANSACTION_TIMEOUT_MS = 60_000
_TRANSACTION_BYTES = 8 * 1024 * 1024
_DELIVERY_SHARE = 2 / 3
"""Of a transaction's time: the rest is for its commit."""


@dataclass(frozen=True)
class Transactions:
    """How long a transaction of a publication may be open, how long its messages may take to be delivered,
    and how many bytes it has at most.
    """

    timeout_ms: int
    delivery_ms: int
    most_bytes: int

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Transactions:
        """Return those that the properties of a cluster ask for, and sound ones where they do not."""
        timeout_ms = int(properties.get(TRANSACTION_TIMEOUT, TRANSACTION_TIMEOUT_MS))
        delivery_ms = properties.get(DELIVERY_TIMEOUT, timeout_ms * _DELIVERY_SHARE)
        most_bytes = properties.get(TRANSACTION_BYTES, _TRANSACTION_BYTES)
        return cls(timeout_ms, int(delivery_ms), int(most_bytes))


_SHOWS_ALL = ("kafka.net.connection", "kafka.protocol.parser", "py4j")
"""Loggers that show as DEBUG whatever is sent: passwords and tokens to Kafka, and to Spark's JVM, in base64,
what its workers read with.
"""


class Secret(str):
    """A text that does not show itself where settings are printed: kafka-python logs its own, for one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def _keep_from_showing_all() -> None:
    for logger in map(logging.getLogger, _SHOWS_ALL):
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)


@dataclass(frozen=True)
class KafkaConfig:
    """Client properties, by the names of `PROPERTIES`. Hidden in `repr`, since they may hold a password.

    `variable` is the setting that they are from: errors name it.
    """

    properties: Mapping[str, str] = field(repr=False)
    variable: str = DEFAULT_VARIABLE

    @classmethod
    def parse(cls, text: str, variable: str = DEFAULT_VARIABLE) -> KafkaConfig:
        """From `host:port,host:port` or a JSON object. Raises SettingsInvalid."""
        if not text.lstrip().startswith("{"):
            return cls.of({"bootstrap.servers": text.strip()}, variable)
        try:
            return cls.of(json.loads(text), variable)
        except json.JSONDecodeError:
            # The text may hold a password: it is not repeated, here or in the cause.
            raise SettingsInvalid(
                f"{variable} is neither host:port nor a JSON object",
                'Write broker:9092, or {"bootstrap.servers": "broker:9092", …}.',
            ) from None

    @classmethod
    def of(cls, properties: Mapping[str, Any], variable: str = DEFAULT_VARIABLE) -> KafkaConfig:
        """From properties by Java's names or librdkafka's. Raises SettingsInvalid for one that a client does
        not have, for some that do not go together, and without bootstrap.servers.
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
        """The bootstrap servers, as one text."""
        return self.properties["bootstrap.servers"]

    @property
    def secrets(self) -> list[str]:
        """The values that nobody is to see."""
        return [text for name, text in self.properties.items() if PROPERTIES[name].is_secret]

    @property
    def transactions(self) -> Transactions:
        """How messages are published."""
        return Transactions.parse(self.properties)

    def redacted(self, text: str) -> str:
        """A client's own words, without what nobody is to see."""
        return redacted(text, self.secrets)

    def for_python(self) -> dict[str, Any]:
        """Keyword arguments for kafka-python's clients. Raises SettingsInvalid for certificates and keys that
        cannot be used, and what `TokenSource.token` raises.
        """
        rows = [(PROPERTIES[name], text) for name, text in self.properties.items()]
        options = {row.python: row.read(text) for row, text in rows if row.python is not None}
        if uses_tls(self.properties):
            options["ssl_context"] = ssl_context(self.properties, self.variable)
        if uses_tokens(self.properties):
            options["sasl_oauth_token_provider"] = self._tokens().for_python()
        return options

    def for_librdkafka(self) -> dict[str, Any]:
        """Options for librdkafka's clients. Raises what `TokenSource.token` raises."""
        rows = [(PROPERTIES[name], text) for name, text in self.properties.items()]
        options: dict[str, Any] = {row.librdkafka: text for row, text in rows if row.librdkafka is not None}
        if uses_tokens(self.properties):
            options["oauth_cb"] = self._tokens().for_librdkafka
        return options

    def _tokens(self) -> TokenSource:
        """Those of the callback, of which there is one by now: a client waits ten seconds for the first, and
        then does not say what was wrong.
        """
        source = token_source(self.properties[CALLBACK], self.properties.get("sasl.oauthbearer.config", ""))
        source.token()
        return source
