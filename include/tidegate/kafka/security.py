"""Check that a client's properties fit together. Kafka's clients would only fail to connect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tidegate.errors import SettingsInvalid
from tidegate.kafka.properties import CALLBACK, DELIVERY_TIMEOUT, TRANSACTION_BYTES, TRANSACTION_TIMEOUT

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
    from tidegate.spec.trusted import VARIABLE, is_trusted  # late: Spark's workers need no grammar

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
