"""One set of Kafka client properties, by their Java names, for both clients: kafka-python and librdkafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import SettingsInvalid

# Java name -> (kafka-python's name, conversion). What is not here is refused: an allow-list.
_PROPERTIES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bootstrap.servers": ("bootstrap_servers", lambda text: text.split(",")),
    "security.protocol": ("security_protocol", str),
    "sasl.mechanism": ("sasl_mechanism", str),
    "sasl.username": ("sasl_plain_username", str),
    "sasl.password": ("sasl_plain_password", str),
    "ssl.ca.location": ("ssl_cafile", str),
    "ssl.certificate.location": ("ssl_certfile", str),
    "ssl.key.location": ("ssl_keyfile", str),
    "ssl.key.password": ("ssl_password", str),
    "request.timeout.ms": ("request_timeout_ms", int),
    "client.id": ("client_id", str),
}
PROGRESS_TOPIC = "tidegate-progress"
PROGRESS_PARTITIONS = 16
# Kafka's default max.message.bytes is 1 MiB, batch overhead included.
MAX_RECORD_BYTES = 1_000_000


@dataclass(frozen=True)
class KafkaConfig:
    """Client properties. Hidden in `repr`, since they may hold a password."""

    properties: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> KafkaConfig:
        """From `host:port,host:port` or a JSON object. Raises SettingsInvalid."""
        if not text.lstrip().startswith("{"):
            return cls.of({"bootstrap.servers": text.strip()})
        try:
            return cls.of(json.loads(text))
        except json.JSONDecodeError:
            # The text may hold a password: it is not repeated, here or in the cause.
            raise SettingsInvalid(
                "TIDEGATE_KAFKA is neither host:port nor a JSON object",
                'Write broker:9092, or {"bootstrap.servers": "broker:9092", …}.',
            ) from None

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> KafkaConfig:
        """From properties; raises SettingsInvalid for one that is unknown, or without bootstrap.servers."""
        unknown = sorted(set(properties) - set(_PROPERTIES))
        if unknown:
            raise SettingsInvalid(
                f"The Kafka settings have properties that tidegate does not pass on: {', '.join(unknown)}",
                f"Known are: {', '.join(_PROPERTIES)}.",
            )
        if not properties.get("bootstrap.servers"):
            raise SettingsInvalid("The Kafka settings have no bootstrap.servers", "Add it: host:port.")
        return cls({name: str(value) for name, value in properties.items()})

    @property
    def servers(self) -> str:
        """The bootstrap servers, as one text."""
        return self.properties["bootstrap.servers"]

    def for_python(self) -> dict[str, Any]:
        """Keyword arguments for kafka-python's clients."""
        return {_PROPERTIES[name][0]: _PROPERTIES[name][1](value) for name, value in self.properties.items()}

    def for_librdkafka(self) -> dict[str, Any]:
        """Options for librdkafka's clients, whose names Java's properties have here, but for these."""
        options: dict[str, Any] = dict(self.properties)
        if timeout := options.pop("request.timeout.ms", None):
            options["socket.timeout.ms"] = int(timeout)
        return options
