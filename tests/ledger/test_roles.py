"""The users of docs/postgresql.md can do what they are for, and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from tests.ledger.test_ledger import attempt, plan
from tests.postgres import PostgresServer
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Ledger, Stream, migrate_database

PAGE = Path(__file__).resolve().parents[2] / "docs" / "postgresql.md"
STREAM = Stream("p", 1)
USERS = ("owner", "worker", "reader")


@pytest.fixture(scope="module")
def urls(postgres: PostgresServer) -> dict[str, str]:
    """User -> URL of a ledger without tables, in which the page's statements have been executed."""
    url = make_url(postgres.new_database())
    statements = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    script = "".join(statements).replace("DATABASE tidegate", f"DATABASE {url.database}")
    for user in USERS:
        script = script.replace(f":'{user}_password'", f"'secret-{user}'")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(script)
    engine.dispose()
    named = {user: url.set(username=f"tidegate_{user}", password=f"secret-{user}") for user in USERS}
    return {user: url.render_as_string(hide_password=False) for user, url in named.items()}


def test_roles_separate_owner_worker_and_reader(urls: dict[str, str]) -> None:
    for user in ("worker", "reader"):
        with pytest.raises(SettingsInvalid, match=r"postgresql\.md"):
            migrate_database(urls[user])
        assert Ledger.open_for_reading(urls[user]).streams() == []
    migrate_database(urls["owner"])

    leased = Ledger.open(urls["worker"]).acquire(STREAM, "r1")
    leased.add_plan(plan(1))
    leased.add_attempt(attempt(1))
    leased.release()

    reader = Ledger.open_for_reading(urls["reader"])
    assert reader.streams() == [STREAM]
    assert reader.plan(STREAM, 1) == plan(1)
    with pytest.raises(SettingsInvalid, match="may not"):
        reader.acquire(STREAM, "r2")


def test_finished_migration_needs_no_right(urls: dict[str, str]) -> None:
    revision = migrate_database(urls["owner"])[1]
    assert migrate_database(urls["worker"]) == (revision, revision)
