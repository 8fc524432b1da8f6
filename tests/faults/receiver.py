"""The receiver of docs/http.md in a process of its own: a step that is killed leaves it running."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from tests.faults.processes import fork
from tests.sinks.http.receiver import receiver_of_the_page


class ReceiverProcess:
    """A running receiver, whose database is in a new folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._database = folder / "orders.db"
        server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        self.url = f"http://127.0.0.1:{server.server_port}"

        def serve() -> int:
            server.RequestHandlerClass = receiver_of_the_page(folder)["Receiver"]
            server.serve_forever()
            return 0

        self._process = fork(serve, folder / "log")
        server.socket.close()  # the process has it

    def emissions(self) -> list[tuple[str, str]]:
        """Key and value of each emission that the receiver has used, in order."""
        if not self._database.exists():  # no request has come
            return []
        with closing(sqlite3.connect(self._database, timeout=30)) as database:
            return database.execute("SELECT key, value FROM emissions ORDER BY rowid").fetchall()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
