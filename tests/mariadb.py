"""A MariaDB server of the test run's own, and an empty database in it for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from sqlalchemy import URL, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from tests.postgres import PASSWORD, as_ordinary_user
from tidegate_dev.processes import Supervised, free_port

_USER = "tidegate@'127.0.0.1'"


class MariaDbServer:
    """A server in a folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self.port = free_port()
        as_user = as_ordinary_user(folder)
        data = ["--no-defaults", f"--datadir={folder}/data"]
        make = ["mariadb-install-db", *data, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run([*as_user, *make], check=True, capture_output=True, cwd="/")
        users = folder / "users.sql"
        grants = (f"CREATE USER {_USER} IDENTIFIED BY '{PASSWORD}'", f"GRANT ALL ON *.* TO {_USER}")
        users.write_text("".join(f"{statement};\n" for statement in grants))
        run = [server, *data, f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket"]
        # the server dies, not the machine: a commit need not reach the disk
        run += ["--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve", f"--init-file={users}"]
        self._process = Supervised("MariaDB", [*as_user, *run], folder / "mariadb.log", os.environ, grace_s=1)

    def start(self) -> None:
        """Up, and ready for connections."""
        self._process.start()
        self._process.wait_ready(self._answers)

    def stop(self) -> None:
        """Down at once, as in a crash."""
        self._process.kill()

    def new_database(self) -> str:
        """The URL, password included, of an empty database."""
        name = f"test_{uuid4().hex[:8]}"
        self._run(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str = "mysql") -> str:
        """The URL, password included, of a database."""
        url = URL.create("mysql+pymysql", "tidegate", PASSWORD, "127.0.0.1", self.port, database)
        return url.render_as_string(hide_password=False)

    def _answers(self) -> bool:
        try:
            self._run("SELECT 1")
        except DBAPIError:
            return False
        return True

    def _run(self, statement: str) -> None:
        with create_engine(self.url(), poolclass=NullPool).connect() as connection:
            connection.exec_driver_sql(statement)


@contextmanager
def mariadb_server() -> Iterator[MariaDbServer]:
    """A new server, running; skips the test where none is installed."""
    pytest.importorskip("pymysql")
    server = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    if server is None or shutil.which("mariadb-install-db") is None:
        pytest.skip("no MariaDB server is installed here (on Debian: `apt install mariadb-server-core`)")
    # not below pytest's own folder, into which no other user may look
    with TemporaryDirectory(prefix="tidegate-mariadb-") as name:
        running = MariaDbServer(Path(name), server)
        running.start()
        try:
            yield running
        finally:
            running.stop()
