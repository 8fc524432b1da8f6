"""This machine's certificate authorities as a Java trust store.

A Java runtime has its own list of authorities. If a company's proxy signs all traffic, Python and the system
trust the proxy's certificate, but the runtime in a wheel does not. Then the download is retried with the
authorities that Python trusts.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from pathlib import Path

_JKS_MAGIC, _JKS_VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_PASSWORD = "changeit"  # Java's usual password. The list is public; the password only protects its checksum


def write_truststore(path: Path) -> bool:
    """Write the authorities that Python trusts to `path`, in the JKS format.

    Returns False if there are none.
    """
    certificates = _trusted_certificates()
    body = struct.pack(">III", _JKS_MAGIC, _JKS_VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    # The format ends with a SHA-1 digest of the password, a fixed phrase, and the content.
    seal = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    path.write_bytes(body + seal.digest())
    return bool(certificates)


def truststore_options(path: Path) -> list[str]:
    """Return the JVM options that trust the authorities in `path`."""
    prefix = "-Djavax.net.ssl.trustStore"
    return [f"{prefix}={path}", f"{prefix}Type=JKS", f"{prefix}Password={_PASSWORD}"]


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")


def _trusted_certificates() -> list[bytes]:
    context = ssl.create_default_context()
    for bundle in _bundles():
        try:
            context.load_verify_locations(cafile=str(bundle))
        except (ssl.SSLError, OSError):
            continue  # a folder of certificates can contain other files
    return context.get_ca_certs(binary_form=True)


def _bundles() -> list[Path]:
    named = [os.environ.get(name) for name in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")]
    folder = ssl.get_default_verify_paths().capath
    listed = sorted(Path(folder).iterdir()) if folder and Path(folder).is_dir() else []
    return [Path(name) for name in named if name] + listed
