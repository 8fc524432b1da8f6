"""A process that lives long sees the ledger as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tidegate.errors import LedgerUnavailable
from tidegate.ledger import Ledger, Stream
from tidegate.ledger.ledger import current_ledger


def test_replaced_ledger_is_reopened_and_unchanged_cached(
    tmp_path: Path,
) -> None:
    url, other = f"sqlite:///{tmp_path}/l.db", f"sqlite:///{tmp_path}/other.db"
    assert current_ledger(url).streams() == []
    Ledger.open(url).acquire(Stream("first", 1), "r").release()
    assert current_ledger(url).streams() == [Stream("first", 1)]
    assert current_ledger(url) is current_ledger(url)
    Ledger.open(other).acquire(Stream("second", 1), "r").release()
    for end in ("-wal", "-shm"):
        (tmp_path / f"l.db{end}").unlink(missing_ok=True)
        if (tmp_path / f"other.db{end}").exists():
            (tmp_path / f"other.db{end}").rename(tmp_path / f"l.db{end}")
    (tmp_path / "other.db").rename(tmp_path / "l.db")
    assert current_ledger(url).streams() == [Stream("second", 1)]


def test_postgresql_that_comes_later_is_shown(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    with postgres.down(), pytest.raises(LedgerUnavailable):
        current_ledger(url)
    assert current_ledger(url).streams() == []  # it is there, and has no tables yet
    Ledger.open(url).acquire(Stream("first", 1), "r").release()
    assert current_ledger(url).streams() == [Stream("first", 1)]
    with postgres.down(), pytest.raises(LedgerUnavailable):
        current_ledger(url).streams()
    assert current_ledger(url).streams() == [Stream("first", 1)]
