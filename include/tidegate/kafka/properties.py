"""The table of Kafka's client properties, with their names in kafka-python and librdkafka.

Users write a property by its Java name or by librdkafka's; most are the same. tidegate stores it by
librdkafka's. A property that is not in the table is refused; for some the error says why a client lacks it.

`checked` finds properties that do not fit together; Kafka's clients would only fail to connect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
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


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (*WITH_PASSWORD, OAUTHBEARER)

_WHY_NOT = {
    "GSSAPI": "librdkafka, as its wheel is built, has no Kerberos",
    "AWS_MSK_IAM": "librdkafka does not have it; Amazon's tokens also go by OAUTHBEARER",
}
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE = 64
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_ALGORITHMS = {"https": "https", "": "none", "none": "none"}
_NUMBERS = {
    TRANSACTION_TIMEOUT: (1_000, 900_000, "milliseconds"),
    DELIVERY_TIMEOUT: (500, 900_000, "milliseconds"),
    TRANSACTION_BYTES: (65_536, 1_073_741_824, "bytes"),
}
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

Properties = Mapping[str, str]


def uses_tls(properties: Properties) -> bool:
    """Return whether connections are encrypted."""
    return properties.get("security.protocol", "PLAINTEXT").endswith("SSL")


def uses_login(properties: Properties) -> bool:
    """Return whether the client logs in by a SASL mechanism."""
    return properties.get("security.protocol", "PLAINTEXT").startswith("SASL")


def uses_tokens(properties: Properties) -> bool:
    """Return whether the client logs in with tokens of a callback."""
    return uses_login(properties) and properties.get("sasl.mechanism") == OAUTHBEARER


def checked(properties: Properties, variable: str) -> dict[str, str]:
    """Return the properties in the form that clients accept: PEM texts with line breaks, librdkafka's words.

    Raises SettingsInvalid, which names the setting `variable`, and repeats no value but words of the
    protocol.
    """
    for check in (_protocol, _transactions, _tls, _certificate, _mechanism, _credentials):
        for what, fix in check(properties):
            raise SettingsInvalid(f"{variable}: {what}", fix)
    texts = dict(properties)
    for name in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if name in texts:
            texts[name] = _pem(texts[name], f"{variable}: {name}")
    if _HOST_CHECK in texts:
        texts[_HOST_CHECK] = _ALGORITHMS[texts[_HOST_CHECK]]
    return texts


Problems = Iterator[tuple[str, str]]
"""Pairs of what is wrong and what to do about it."""


def _protocol(properties: Properties) -> Problems:
    if properties.get("security.protocol", "PLAINTEXT") not in PROTOCOLS:
        yield "security.protocol is not one of Kafka's", f"Write one of {', '.join(PROTOCOLS)}."
    if not properties.get("request.timeout.ms", "1").isdecimal():
        yield "request.timeout.ms is no whole number", "Write milliseconds, such as 30000."


def _transactions(properties: Properties) -> Problems:
    for name, (least, most, unit) in _NUMBERS.items():
        text = properties.get(name, str(least))
        if not text.isdecimal() or not least <= int(text) <= most:
            yield (
                f"{name} is no whole number of {unit} from {least} to {most}",
                f"Write one, such as {least}.",
            )
    timeout = properties.get(TRANSACTION_TIMEOUT, "60000")
    if int(properties.get(DELIVERY_TIMEOUT, "0")) > int(timeout):
        yield (
            f"{DELIVERY_TIMEOUT} is longer than a transaction may be open, {TRANSACTION_TIMEOUT}={timeout}",
            f"Write {int(timeout) * 2 // 3} or less, or leave it out.",
        )


def _tls(properties: Properties) -> Problems:
    given = sorted(name for name in properties if name.startswith("ssl."))
    if given and not uses_tls(properties):
        yield (
            f"{given[0]} is set, and the connection is not encrypted",
            "Set security.protocol to SSL, or to SASL_SSL with a login; or leave it out.",
        )
    if properties.get(_HOST_CHECK, "https") not in _ALGORITHMS:
        yield f"{_HOST_CHECK} is not known", "Write https, or none."
    for name in ("ca", "certificate", "key"):
        if {f"ssl.{name}.location", f"ssl.{name}.pem"} <= properties.keys():
            yield f"ssl.{name} is there as a file and as a text", "Keep one of them."


def _certificate(properties: Properties) -> Problems:
    parts = {
        part: properties.keys() & {f"ssl.{part}.location", f"ssl.{part}.pem"}
        for part in ("certificate", "key")
    }
    for part, other in (("certificate", "key"), ("key", "certificate")):
        if parts[part] and not parts[other]:
            yield (
                f"a client's {part} is set without the {other}",
                f"Add ssl.{other}.location or ssl.{other}.pem: mutual TLS takes both.",
            )


def _mechanism(properties: Properties) -> Problems:
    mechanism = properties.get("sasl.mechanism")
    given = sorted(name for name in properties if name.startswith("sasl."))
    if given and not uses_login(properties):
        yield (
            f"{given[0]} is set, and nobody logs in",
            "Set security.protocol to SASL_SSL (SASL_PLAINTEXT sends passwords of PLAIN as they are).",
        )
    if uses_login(properties) and mechanism is None:
        yield "a login needs sasl.mechanism", f"Write one of {', '.join(MECHANISMS)}."
    if mechanism in _WHY_NOT:
        yield (
            f"sasl.mechanism {mechanism} cannot be used: {_WHY_NOT[mechanism]}",
            f"Use one of {', '.join(MECHANISMS)}, or a client certificate.",
        )
    elif mechanism is not None and mechanism not in MECHANISMS:
        yield "sasl.mechanism is none that tidegate has", f"Write one of {', '.join(MECHANISMS)}."


def _credentials(properties: Properties) -> Problems:
    mechanism = properties.get("sasl.mechanism")
    by_callback = properties.keys() & {CALLBACK, "sasl.oauthbearer.config"}
    by_password = properties.keys() & {"sasl.username", "sasl.password"}
    if mechanism in WITH_PASSWORD:
        if len(by_password) < 2:
            yield (
                f"sasl.mechanism {mechanism} needs a user and a password",
                "Set sasl.username, sasl.password.",
            )
        if by_callback:
            yield (
                f"{sorted(by_callback)[0]} is only for {OAUTHBEARER}",
                "Leave it out, or change sasl.mechanism.",
            )
    if mechanism == OAUTHBEARER:
        if by_password:
            yield (
                f"{sorted(by_password)[0]} is not for {OAUTHBEARER}",
                "What the callback needs to know goes into sasl.oauthbearer.config.",
            )
        yield from _callback(properties.get(CALLBACK, ""))


def _callback(name: str) -> Problems:
    if not _FUNCTION.fullmatch(name):
        yield (
            f"{OAUTHBEARER} needs a function that gives tokens, as module:function",
            f"Set {CALLBACK}, such as {CALLBACK}=shop.kafka:token.",
        )
        return
    from tidegate.model.trusted import VARIABLE, is_trusted  # late: Spark's workers need no grammar

    module = name.partition(":")[0]
    if not is_trusted(module):
        yield (
            f"the module {module} of {CALLBACK} may not be called",
            f"Whoever runs tidegate has to list it in the environment: {VARIABLE}={module},…",
        )


def _pem(text: str, where: str) -> str:
    """Return a PEM text with line breaks, which forms and properties files lose. Raises SettingsInvalid."""
    blocks = _BLOCK.findall(text.replace("\\n", "\n"))
    if not blocks:
        raise SettingsInvalid(
            f"{where} is no PEM text (-----BEGIN …)",
            "Write the text itself, or name its file by the property that ends with .location.",
        )
    return "".join(f"-----BEGIN {kind}-----\n{_lines(body)}-----END {kind}-----\n" for kind, body in blocks)


def _lines(body: str) -> str:
    if ":" in body:  # the headers of an encrypted key, which have lines of their own
        return body.strip("\n") + "\n"
    text = "".join(body.split())
    return "".join(f"{text[at : at + _LINE]}\n" for at in range(0, len(text), _LINE))
