"""Ledger and SQL sinks on PostgreSQL work behind a pooler that changes sessions between transactions."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from tests.pooler import pooled
from tests.postgres import PostgresServer
from tidegate.errors import LeaseHeld, SettingsInvalid
from tidegate.ledger import Ledger, Stream
from tidegate.ledger.database import answering
from tidegate.postgres import is_lost_statement
from tidegate.sinks.sql.database import Database

pytestmark = pytest.mark.process

MANY = 20
"""More often than the driver, by default, executes a statement before it prepares it."""


def state_of_session(connection: Connection) -> tuple[int, int]:
    """Return how many prepared statements and advisory locks a session has."""
    prepared = connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one()
    locks = connection.execute(
        text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
    ).scalar_one()
    return prepared, locks


def test_the_ledger_leaves_nothing_in_a_session(postgres_url: str) -> None:
    ledger = Ledger.open(postgres_url)
    stream = Stream("visitors", 1)
    for _ in range(MANY):
        lease = ledger.acquire(stream, "run")
        lease.renew()
        ledger.head(stream)
        lease.release()
    with ledger._engine.connect() as connection:
        assert state_of_session(connection) == (0, 0)


def test_a_sink_prepares_no_statement(postgres_url: str) -> None:
    with Database(postgres_url, "TIDEGATE_SQL") as database, database.transaction() as connection:
        connection.execute(text("CREATE TABLE t (n int)"))
        for number in range(MANY):
            connection.execute(text("INSERT INTO t VALUES (:n)"), {"n": number})
        assert state_of_session(connection) == (0, 0)


def test_commands_alternate_behind_a_pooler(postgres: PostgresServer, postgres_url: str) -> None:
    first, second = Stream("visitors", 1), Stream("orders", 1)
    with pooled(postgres, postgres_url) as url:
        Ledger.open(url)
        ledgers = [Ledger.open(url), Ledger.open(url)]  # as two processes have them
        for turn in range(MANY):
            ledger = ledgers[turn % 2]
            leases = [ledger.acquire(stream, "run") for stream in (first, second)]
            for lease in leases:
                lease.renew()
                assert lease.head(lease.stream).seq == 0
                lease.release()
        with Database(url, "TIDEGATE_SQL") as database, database.transaction() as connection:
            connection.execute(text("CREATE TABLE t (n int)"))
        for number in range(MANY):
            with Database(url, "TIDEGATE_SQL") as database, database.transaction() as connection:
                connection.execute(text("INSERT INTO t VALUES (:n)"), {"n": number})
        with Database(url, "TIDEGATE_SQL") as database, database.transaction() as connection:
            assert connection.execute(text("SELECT count(*) FROM t")).scalar_one() == MANY


def test_lease_is_exclusive_behind_a_pooler(postgres: PostgresServer, postgres_url: str) -> None:
    stream = Stream("visitors", 1)
    with pooled(postgres, postgres_url) as url:
        lease = Ledger.open(url).acquire(stream, "run")
        with pytest.raises(LeaseHeld):
            Ledger.open(url).acquire(stream, "another run")
        lease.release()
        Ledger.open(url).acquire(stream, "another run").release()


def test_statement_lost_by_a_pooler_is_typed(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    is_told = pytest.raises(SettingsInvalid, match=r"lost a statement.*postgresql\.md")
    with is_told, answering(engine.url), engine.connect() as connection:
        connection.exec_driver_sql("EXECUTE s1")
    with is_told, Database(postgres_url, "TIDEGATE_SQL") as database, database.transaction() as connection:
        connection.exec_driver_sql("EXECUTE s1")


def test_another_wrong_statement_is_none_that_was_lost(postgres_url: str) -> None:
    with pytest.raises(DBAPIError) as caught, create_engine(postgres_url).connect() as connection:
        connection.exec_driver_sql("SELEC 1")
    assert not is_lost_statement(caught.value)
