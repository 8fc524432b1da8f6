"""Where ledger and SQL sink of a run are: SQLite files in its folder, or databases of a PostgreSQL server."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import NullPool, create_engine, inspect, make_url, text


@dataclass(frozen=True)
class Databases:
    """The URLs of one run's two databases."""

    ledger: str
    sink: str

    @property
    def kind(self) -> str:
        """Return `sqlite` or `postgresql`."""
        return make_url(self.ledger).get_backend_name()

    def head(self, pipeline: str | None = None) -> int:
        """The last committed batch, asked without any of tidegate's code. `pipeline` says whose, where the
        ledger has several."""
        condition = f" WHERE pipeline = '{pipeline}'" if pipeline is not None else ""
        return self._ask(self.ledger, f"SELECT max(seq) FROM tidegate_heads{condition}")[0][0] or 0

    def levels(self, in_order: bool) -> list[tuple[Any, ...]] | None:
        """The rows of the sink's table, in the order in which they came if there is one; None before it is
        created.
        """
        if not inspect(create_engine(self.sink, poolclass=NullPool)).has_table("levels"):
            return None
        order = f" ORDER BY {self._arrival}" if in_order else ""
        rows = [tuple(row) for row in self._ask(self.sink, f"SELECT * FROM levels{order}")]
        return rows if in_order else sorted(rows, key=repr)

    @property
    def _arrival(self) -> str:
        # nothing is updated or deleted where rows are appended
        return "rowid" if self.kind == "sqlite" else "ctid"

    def _ask(self, url: str, query: str) -> Any:
        engine = create_engine(url, poolclass=NullPool)  # nothing stays open that a fork would share
        with engine.connect() as connection:
            return connection.execute(text(query)).all()


def sqlite_files(folder: Path) -> Databases:
    """Files in a run's folder."""
    return Databases(f"sqlite:///{folder}/ledger.db", f"sqlite:///{folder}/sink.db")


class SqliteFiles:
    """Each run has its own files; its ledger is a copy of an empty one."""

    kind = "sqlite"

    def __init__(self, home: Path) -> None:
        self._empty = home / "empty.db"
        self.empty_ledger = f"sqlite:///{self._empty}"

    def create(self, folder: Path, _name: str) -> Databases:
        """An empty ledger, and a sink without tables."""
        if self._empty.exists():
            shutil.copy(self._empty, folder / "ledger.db")
        return sqlite_files(folder)

    def drop(self, name: str) -> None:
        """The files go with their folder."""


class PostgresDatabases:
    """Each run has its own databases; its ledger is a copy of an empty one."""

    kind = "postgresql"

    def __init__(self, server: str, worker: str) -> None:
        self._server = make_url(server)
        self._empty = f"empty_{worker}"
        self._run(f"CREATE DATABASE {self._empty}")
        self.empty_ledger = self._url(self._empty)

    def create(self, _folder: Path, name: str) -> Databases:
        """An empty ledger, and a sink without tables."""
        self._run(f"CREATE DATABASE {name}_ledger TEMPLATE {self._empty}")
        self._run(f"CREATE DATABASE {name}_sink")
        return Databases(self._url(f"{name}_ledger"), self._url(f"{name}_sink"))

    def drop(self, name: str) -> None:
        """Nobody needs them any more."""
        for role in ("ledger", "sink"):
            self._run(f"DROP DATABASE {name}_{role} WITH (FORCE)")

    def _url(self, database: str) -> str:
        return self._server.set(database=database).render_as_string(hide_password=False)

    def _run(self, statement: str) -> None:
        engine = create_engine(self._server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text(statement))
