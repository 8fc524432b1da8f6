"""A PostgreSQL server of the test run's own, and an empty database in it for each test."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from sqlalchemy import URL, create_engine, text

from tidegate_dev.processes import Supervised, free_port

PASSWORD = "hunter2-sink"


class PostgresServer:
    """A server in a folder. It can be stopped and started again, on the same port with the same data."""

    def __init__(self, folder: Path, programs: Path, superuser_password: str = PASSWORD) -> None:
        self.port = free_port()
        self._programs = programs
        self._password = superuser_password
        password = folder / "password"
        password.write_text(superuser_password)
        as_user = as_ordinary_user(folder, password)
        make = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "--no-sync"]
        make += ["--auth=scram-sha-256", f"--pwfile={password}", "--encoding=UTF8"]
        subprocess.run([*as_user, *make], check=True, capture_output=True, cwd="/")
        run = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(self.port), "-k", ""]
        run += ["-c", "fsync=off"]  # the server dies, not the machine: a restart is quick then
        run += ["-c", "dynamic_shared_memory_type=mmap"]  # a killed server would leave it in /dev/shm
        log = folder / "postgres.log"
        self._process = Supervised("PostgreSQL", [*as_user, *run], log, os.environ, grace_s=1)

    def start(self) -> None:
        """Up, and ready for connections."""
        self._process.start()
        ready = [str(self._programs / "pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        self._process.wait_ready(lambda: subprocess.run(ready, check=False).returncode == 0)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Killed while the body runs; up again after it, also when that fails."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def stop(self) -> None:
        """Down at once, as in a crash."""
        self._process.kill()

    def new_database(self) -> str:
        """The URL, password included, of an empty database."""
        name = f"test_{uuid4().hex[:8]}"
        engine = create_engine(self.url(), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self.url(name)

    def url(self, database: str = "postgres") -> str:
        """The URL, password included, of a database."""
        url = URL.create("postgresql+psycopg", "postgres", self._password, "127.0.0.1", self.port, database)
        return url.render_as_string(hide_password=False)


@contextmanager
def postgres_server(superuser_password: str = PASSWORD) -> Iterator[PostgresServer]:
    """A new server, running; skips the test where none is installed."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed here")
    # not below pytest's own folder, into which no other user may look
    with TemporaryDirectory(prefix="tidegate-postgres-") as name:
        server = PostgresServer(Path(name), programs, superuser_password)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's programs, if a server is installed."""
    on_path = shutil.which("initdb")
    folders = (
        [Path(on_path).resolve()] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    )
    return folders[-1].parent if folders else None


def as_ordinary_user(*paths: Path) -> list[str]:
    """The server refuses to run as root: then let another user own the paths and run it."""
    if os.getuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("nothing here runs a program as another user")
    user = pwd.getpwnam("nobody")
    for path in paths:
        os.chown(path, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
