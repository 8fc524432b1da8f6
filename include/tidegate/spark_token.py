"""A Spark Connect server on this machine: its address in a TIDEGATE_HOME, and its token. Clients of the same
user find the token by the server's port.

A client of a Spark Connect server runs code as the user who started the server, and every user of a machine
can reach its loopback address. So a server that tidegate starts requires a token. The token is in a file
below the home directory that only its user can read, not in an address, an argument or a log. Without TLS,
PySpark sends a token only to the host `localhost`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

HOST = "localhost"
VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Spark's variable for the token: a server requires this token, a client sends it."""
_ADDRESS = "spark-connect.address"


def announce(home: Path, url: str) -> None:
    """Tell commands with this TIDEGATE_HOME that a server is kept for them."""
    (home / _ADDRESS).write_text(url)


def withdraw(home: Path) -> None:
    """Undo `announce`, since the server has ended."""
    (home / _ADDRESS).unlink(missing_ok=True)


def kept_server(home: Path) -> str | None:
    """Return the address of the server that is kept for this TIDEGATE_HOME; None if there is none.

    It may have ended without a word.
    """
    with suppress(OSError):
        return (home / _ADDRESS).read_text().strip() or None
    return None


def write_token(port: int, token: str) -> None:
    """Store the token of the server at a port for clients of this user. Raises OSError if the file cannot be
    written.
    """
    path = _path(port)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A new file, since `touch` does not change the mode of an existing one.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(token)


def read_token(port: int) -> str | None:
    """Return the token of the server at a port; None if this user has started no server there."""
    with suppress(OSError):
        return _path(port).read_text()
    return None


def remove_token(port: int) -> None:
    """Remove the token of a server that has ended."""
    with suppress(OSError):
        _path(port).unlink()


def _path(port: int) -> Path:
    return Path.home() / ".cache" / "tidegate" / f"spark-connect-{port}.token"
