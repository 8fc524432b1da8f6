"""Hide the secrets of a database's URL in messages, logs and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

if TYPE_CHECKING:  # imported by the settings, which must not wait for SQLAlchemy
    from sqlalchemy import URL

HIDDEN = "***"
_SECRET = re.compile(
    r"pass|pwd|secret|token|credential|proxy|-key|connection-string|^header\.", re.IGNORECASE
)


def names_secret(name: str) -> bool:
    """Return whether an option or property of this name has a secret.

    >>> names_secret("private_key_file_pwd"), names_secret("s3.access-key-id"), names_secret("sslkey")
    (True, True, False)
    """
    return _SECRET.search(name) is not None


def secrets_of(url: URL) -> list[str]:
    """Return the password of a URL and the values of its options like `sslpassword`."""
    return [secret for secret in (str(url.password or ""), *_secret_options(url)) if secret]


def shown_url(url: URL) -> str:
    """Return the URL as text, with its secrets replaced by `***`."""
    hidden = {name: HIDDEN for name in url.query if names_secret(name)}
    shown = url.update_query_dict(hidden).render_as_string(hide_password=True)
    return redacted(shown.replace(quote_plus(HIDDEN), HIDDEN), secrets_of(url))


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret replaced by `***`.

    Example: `redacted("password x1 refused", ["x1"])` is `password *** refused`.
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, HIDDEN)
    return text


def _secret_options(url: URL) -> Iterator[str]:
    for name, value in url.query.items():
        if names_secret(name):
            yield from (value,) if isinstance(value, str) else value
