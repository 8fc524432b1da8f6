"""Certificates of a test's own: an authority, a broker's, a client's, and those of a stranger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_KEY = serialization.PrivateFormat.PKCS8
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key."""

    certificate: x509.Certificate
    private_key: rsa.RSAPrivateKey

    @property
    def text(self) -> str:
        return self.certificate.public_bytes(_PEM).decode()

    @property
    def key(self) -> str:
        """Return the text of the key, which has no password."""
        return self.private_key.private_bytes(_PEM, _KEY, serialization.NoEncryption()).decode()

    def encrypted_key(self, password: str) -> str:
        cipher = serialization.BestAvailableEncryption(password.encode())
        return self.private_key.private_bytes(_PEM, _KEY, cipher).decode()


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, name: str, above: Authority | None = None) -> None:
        self.name = name
        self.above = above

    @cached_property
    def own(self) -> Certificate:
        return _signed(self.name, self.above.own if self.above else None, is_authority=True)

    def sign(self, name: str) -> Certificate:
        return _signed(name, self.own, is_authority=False)


def _signed(name: str, issuer: Certificate | None, is_authority: bool) -> Certificate:
    key = rsa.generate_private_key(65537, 2048)
    subject = _named(name)
    now = datetime.now(timezone.utc)
    addresses = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
    )
    certificate = builder.sign(issuer.private_key if issuer else key, hashes.SHA256())
    return Certificate(certificate, key)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
