"""The token of a Spark Connect server on this machine, which clients of the same user find by its port.

Who reaches a Spark Connect server runs code as the user who started it, and each user of a machine reaches
its loopback address. So a server that tidegate starts asks for a token. It is in a file that only its user
can read, below the home directory: neither in an address, nor in an argument or a log. PySpark sends a token
without TLS to the host `localhost` alone.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

HOST = "localhost"
VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Spark's own: of a server the token that it asks for, of a client the one that it sends."""


def write_token(port: int, token: str) -> None:
    """Keep the token of the server at a port for clients of this user. Raise OSError where that fails."""
    path = _path(port)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(token)


def read_token(port: int) -> str | None:
    """Return the token of the server at a port; None where this user has started none there."""
    with suppress(OSError):
        return _path(port).read_text()
    return None


def remove_token(port: int) -> None:
    """Forget the token of a server that has ended."""
    with suppress(OSError):
        _path(port).unlink()


def _path(port: int) -> Path:
    return Path.home() / ".cache" / "tidegate" / f"spark-connect-{port}.token"


__all__ = ["HOST", "VARIABLE", "read_token", "remove_token", "write_token"]
