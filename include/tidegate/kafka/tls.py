"""TLS for kafka-python, as a context of Python's `ssl`; and the reason why a broker refuses it.

librdkafka reads the same files and texts itself.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tidegate.errors import SettingsInvalid

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
