"""Connect to a cluster by TLS, and find out why it does not answer.

kafka-python reports only that it does not. It also loses a broker's answer to a login over TLS before the
broker hangs up, so librdkafka tries the login.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from tidegate.errors import BrokerUnavailable, SettingsInvalid, TidegateError
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.properties import uses_login, uses_tls

_LOOK_SECONDS = 3.0
_ALERT_SECONDS = 0.5


def ssl_context(properties: Mapping[str, str], variable: str) -> ssl.SSLContext:
    """Return the TLS context for kafka-python. Without an `ssl.ca` it trusts the authorities of the machine.

    Raises SettingsInvalid if a file or text cannot be used; the error names the setting `variable`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm") != "none"
    with _unusable(variable, "ssl.ca"):
        file, text = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
        if file or text:
            context.load_verify_locations(file, cadata=text)
        else:
            context.load_default_certs()
    if "ssl.certificate.location" in properties or "ssl.certificate.pem" in properties:
        with _unusable(variable, "ssl.certificate, ssl.key or ssl.key.password"), ExitStack() as texts:
            chain, key = (
                properties.get(f"ssl.{part}.location")
                or texts.enter_context(_readable(properties[f"ssl.{part}.pem"]))
                for part in ("certificate", "key")
            )
            # Never None: for an encrypted key Python's ssl would ask for the password at the terminal.
            context.load_cert_chain(chain, key, properties.get("ssl.key.password", ""))
    return context


@contextmanager
def _unusable(variable: str, names: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SettingsInvalid(
            f"{variable}: {names} cannot be used: {_reason(error)}",
            "Check that the files are there, readable, and PEM; that the key is the certificate's; and the "
            "key's password, if it has one.",
        ) from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.ESPIPE:  # from the pipe: it hides the reason
        return "the key is not the certificate's, or its password is not right"
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__


@contextmanager
def _readable(text: str) -> Iterator[str]:
    """Yield a path from which a text can be read once.

    Python loads a key only from a file, but the key must not be written to a disk. So the path is that of a
    pipe.
    """
    reader, writer = os.pipe()
    try:
        # Nobody reads the pipe yet: a blocking write of a long text would never return.
        os.set_blocking(writer, False)
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            if pipe.write(text.encode()) != len(text):
                raise ValueError("more than a pipe takes")
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)


def tls_problem(servers: str, context: ssl.SSLContext) -> str | None:
    """Return why TLS with a broker fails, by the first server that answers; None if it works, or none
    answers.

    Kafka's clients only report that they cannot connect.
    """
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with (
                socket.create_connection((host.strip("[]"), int(port)), _LOOK_SECONDS) as connection,
                context.wrap_socket(connection, server_hostname=host.strip("[]")) as encrypted,
            ):
                # In TLS 1.3 the server's alert about the client's certificate comes after the handshake.
                encrypted.settimeout(_ALERT_SECONDS)
                encrypted.recv(1)
                return None
        except TimeoutError:
            return None
        except ssl.SSLError as error:
            return getattr(error, "verify_message", None) or error.reason or type(error).__name__
        except (OSError, ValueError):
            continue
    return None


RIGHTS_PAGE = "docs/kafka.md"
_LOGIN_SECONDS = 3.0


def login_refused(config: KafkaConfig, reason: str) -> SettingsInvalid:
    """Return the error for a user whom a broker refuses."""
    return SettingsInvalid(
        f"Kafka at {config.servers} refuses this login: {reason}",
        f"Check the user and the mechanism in {config.variable}, and the user's rights: {RIGHTS_PAGE} lists "
        "those that tidegate needs.",
    )


def topic_right_missing(config: KafkaConfig, operation: str, *topics: str) -> SettingsInvalid:
    """Return the error for a user who lacks the right to an operation on a topic, or on one of several.

    Example: `topic_right_missing(config, "Write", "changes")`
    """
    what = f"the topic {' or '.join(topics)}"
    return right_missing(config, operation, what, " ".join(f"--topic {topic}" for topic in topics))


def right_missing(config: KafkaConfig, operation: str, what: str, options: str) -> SettingsInvalid:
    """Return the error for a user who lacks a right.

    Args:
        operation: The operation as Kafka calls it, such as `Write`.
        what: The resource in words.
        options: Those of kafka-acls.sh for the resource.
    """
    user = config.properties.get("sasl.username", "NAME")
    return SettingsInvalid(
        f"Kafka at {config.servers} does not allow this user the operation {operation} on {what}",
        f"Allow it: kafka-acls.sh --add --allow-principal User:{user} --operation {operation} {options}. "
        f"{RIGHTS_PAGE} lists all rights that tidegate needs.",
    )


def unreachable(config: KafkaConfig, reason: str) -> TidegateError:
    """Return the error for a cluster that does not answer, with the reason if it can be found out.

    It connects to the cluster again, which can take several seconds.
    """
    problem = _tls_problem(config)
    if problem is not None:
        return SettingsInvalid(
            f"Kafka at {config.servers} cannot be reached by TLS: {problem}",
            f"Check in {config.variable} that security.protocol is that of this listener, that ssl.ca is "
            "who signed the broker's certificate, and that the broker takes the client's.",
        )
    refusal = _refusal(config)
    if refusal is not None:
        return login_refused(config, refusal)
    return BrokerUnavailable(
        f"Kafka at {config.servers} does not answer ({reason})",
        f"Check that the broker runs, and that {config.variable} has its address, and the listener's "
        "security.protocol and sasl.mechanism; then run again, nothing is lost.",
    )


def _tls_problem(config: KafkaConfig) -> str | None:
    if not uses_tls(config.properties):
        return None
    return tls_problem(config.servers, ssl_context(config.properties, config.variable))


def _refusal(config: KafkaConfig) -> str | None:
    """Return the name of the error with which a broker refuses the login; None if it does not.

    The broker's own text is left out, since it can contain anything.
    """
    if not uses_login(config.properties):
        return None
    import confluent_kafka as ck  # late: code that only asks questions does not need it otherwise

    refusals = {ck.KafkaError._AUTHENTICATION, ck.KafkaError.SASL_AUTHENTICATION_FAILED}
    errors: list[Any] = []
    client = ck.Producer(config.for_librdkafka() | {"error_cb": errors.append, "log_level": 0})
    try:
        client.list_topics(timeout=_LOGIN_SECONDS)
    except ck.KafkaException as error:
        errors.append(error.args[0])
    # The client calls `error_cb` only from within `poll` and the like.
    client.poll(0)
    return next((error.name() for error in errors if error.code() in refusals), None)
