"""The table of Kafka's client properties, with their names in kafka-python and librdkafka.

Users write a property by its Java name or by librdkafka's; most are the same. tidegate stores it by
librdkafka's. A property that is not in the table is refused; for some the error says why a client lacks it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.errors import SettingsInvalid


def _itself(text: str) -> str:
    return text


@dataclass(frozen=True)
class Property:
    """A client property, by the name that tidegate stores.

    `python` is kafka-python's keyword; None if the property becomes part of the `ssl_context` or of the token
    provider. `librdkafka` is the name in librdkafka, None if it does not get the property. `read` converts
    the text for kafka-python. `aliases` are other names under which users can write the property.
    """

    name: str
    python: str | None
    librdkafka: str | None
    read: Callable[[str], Any] = _itself
    aliases: tuple[str, ...] = ()
    is_secret: bool = False


def _property(name: str, python: str | None = None, **more: Any) -> Property:
    return Property(name, python, **({"librdkafka": name} | more))


TRANSACTION_TIMEOUT = "transaction.timeout.ms"
DELIVERY_TIMEOUT = "delivery.timeout.ms"
TRANSACTION_BYTES = "tidegate.transaction.bytes"
"""A property of tidegate. Like the two above, only publication uses it: see `KafkaConfig.transactions`."""
CALLBACK = "sasl.oauthbearer.callback"
"""A property of tidegate: a function as `module:function`, which gives tokens to both clients."""

_TABLE = (
    _property("bootstrap.servers", "bootstrap_servers", read=lambda text: text.split(",")),
    _property("client.id", "client_id"),
    _property("request.timeout.ms", "request_timeout_ms", librdkafka="socket.timeout.ms", read=int),
    _property(TRANSACTION_TIMEOUT, librdkafka=None),
    _property(DELIVERY_TIMEOUT, librdkafka=None, aliases=("message.timeout.ms",)),
    _property(TRANSACTION_BYTES, librdkafka=None),
    _property("security.protocol", "security_protocol"),
    _property("ssl.ca.location"),
    _property("ssl.ca.pem", aliases=("ssl.truststore.certificates",)),
    _property("ssl.certificate.location"),
    _property("ssl.certificate.pem", aliases=("ssl.keystore.certificate.chain",)),
    _property("ssl.key.location"),
    _property("ssl.key.pem", aliases=("ssl.keystore.key",), is_secret=True),
    _property("ssl.key.password", is_secret=True),
    _property("ssl.endpoint.identification.algorithm"),
    _property("sasl.mechanism", "sasl_mechanism", aliases=("sasl.mechanisms",)),
    _property("sasl.username", "sasl_plain_username"),
    _property("sasl.password", "sasl_plain_password", is_secret=True),
    _property(CALLBACK, librdkafka=None),
    _property("sasl.oauthbearer.config", is_secret=True),
)
PROPERTIES: Mapping[str, Property] = {row.name: row for row in _TABLE}
_CANONICAL = {name: row.name for row in _TABLE for name in (row.name, *row.aliases)}

_STORE = "neither kafka-python nor librdkafka reads Java's key stores"
_TO_PEM = (
    "Give PEM files (ssl.ca.location, ssl.certificate.location, ssl.key.location) or texts (ssl.ca.pem, "
    "ssl.certificate.pem, ssl.key.pem): openssl pkcs12 -in STORE.p12 -nodes writes them."
)
_JAVA_CLASS = "it names a Java class, and both clients are Python's"
_NO_OIDC = "kafka-python does not fetch tokens by itself"
_NAME_CALLBACK = f"Name a Python function that gives tokens: {CALLBACK}=module:function."
_REFUSED: Mapping[str, tuple[str, str]] = {
    "ssl.truststore.password": (_STORE, _TO_PEM),
    "ssl.keystore.password": (_STORE, _TO_PEM),
    "sasl.login.callback.handler.class": (_JAVA_CLASS, _NAME_CALLBACK),
    "sasl.client.callback.handler.class": (_JAVA_CLASS, _NAME_CALLBACK),
    "sasl.login.class": (_JAVA_CLASS, _NAME_CALLBACK),
    "sasl.oauthbearer.method": (_NO_OIDC, _NAME_CALLBACK),
    "sasl.oauthbearer.client.id": (_NO_OIDC, _NAME_CALLBACK),
    "sasl.oauthbearer.client.secret": (_NO_OIDC, _NAME_CALLBACK),
    "sasl.oauthbearer.scope": (_NO_OIDC, _NAME_CALLBACK),
    "sasl.oauthbearer.token.endpoint.url": (_NO_OIDC, _NAME_CALLBACK),
    "sasl.kerberos.service.name": (
        "librdkafka, as its wheel is built, has no Kerberos",
        "Use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or a client certificate.",
    ),
}
"""Properties that only some clients have -> the reason, and what to do instead."""

_STORES = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}
"""Java's stores -> the properties that replace one of type PEM, a file that both clients can read."""

_LOGIN_MODULE = re.compile(
    r"\s*[\w.]*\.(?:Plain|Scram)LoginModule\s+required\b(?P<options>.*);\s*", re.DOTALL
)
_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")


def secrets(written: Mapping[str, Any]) -> list[str]:
    """Return the secret values of properties as a user has written them, also of properties that are
    refused.
    """
    texts = [str(text) for name, text in written.items() if _is_secret(name)]
    options = [option for text in texts for option in _OPTION.findall(text)]
    passwords = [_unescaped(double or single) for name, double, single in options if name == "password"]
    return [text for text in (*texts, *passwords) if text]


def _is_secret(name: str) -> bool:
    row = PROPERTIES.get(_CANONICAL.get(name, ""))
    return row.is_secret if row is not None else name.endswith(("password", "secret", "jaas.config"))


def canonical(written: Mapping[str, Any], variable: str) -> dict[str, str]:
    """Return the properties by the names of the table. `variable` is the setting that errors name.

    Raises SettingsInvalid for a name that is refused or unknown, and for a property that is set twice. No
    error repeats a value.

    Example: `canonical({"sasl.mechanisms": "PLAIN"}, "TIDEGATE_KAFKA")` is `{"sasl.mechanism": "PLAIN"}`.
    """
    texts = _without_java({name: str(value) for name, value in written.items()}, variable)
    properties: dict[str, str] = {}
    for name, text in texts.items():
        if name in _REFUSED:
            why, fix = _REFUSED[name]
            raise SettingsInvalid(f"{variable} has {name}, which cannot be used: {why}", fix)
        if name not in _CANONICAL:
            raise SettingsInvalid(
                f"{variable} has {name}, which tidegate does not support",
                f"Supported are: {', '.join(PROPERTIES)}.",
            )
        if _CANONICAL[name] in properties:
            raise SettingsInvalid(f"{variable} has {_CANONICAL[name]} twice, also as {name}", "Keep one.")
        properties[_CANONICAL[name]] = text
    return properties


def _without_java(written: Mapping[str, str], variable: str) -> dict[str, str]:
    """Return the properties with Java's own forms replaced: key stores, and logins as one text."""
    properties, parts = dict(written), dict[str, str]()
    for store, names in _STORES.items():
        kind, location = properties.pop(f"{store}.type", None), properties.pop(f"{store}.location", None)
        if kind not in (None, "PEM") or (location is not None and kind is None):
            raise SettingsInvalid(
                f"{variable} has a {store} that is not PEM: {_STORE}",
                f"{_TO_PEM} For a store that is PEM already, which is not Java's default: {store}.type=PEM.",
            )
        if location is not None:
            parts |= dict.fromkeys(names, location)
    login = properties.pop("sasl.jaas.config", None)
    if login is not None:
        parts |= _login(login, variable)
    for name in sorted(parts.keys() & properties.keys()):
        raise SettingsInvalid(f"{variable} has {name} twice, also as Java has it", "Keep one.")
    return properties | parts


def _login(jaas: str, variable: str) -> dict[str, str]:
    module = _LOGIN_MODULE.fullmatch(jaas)
    options_written = _OPTION.findall(module["options"]) if module is not None else []
    options = {name: _unescaped(double or single) for name, double, single in options_written}
    if not {"username", "password"} <= options.keys():
        raise SettingsInvalid(
            f"{variable} has a sasl.jaas.config that is no login by PLAIN or SCRAM",
            f"Write sasl.username and sasl.password. For OAUTHBEARER: {_NAME_CALLBACK}",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
