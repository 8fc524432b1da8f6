"""Who makes the ledger's tables, who changes them, and who leaves them as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from tidegate.errors import SettingsInvalid
from tidegate.ledger import Ledger, Stream, migrate_database
from tidegate.ledger import database as ledger_database
from tidegate.ledger.database import SCHEMA_REVISION

STREAM = Stream("p", 1)
NEXT = "9998"
NEXT_SCRIPT = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{SCHEMA_REVISION}"


def upgrade() -> None:
    op.create_table("tidegate_added", sa.Column("n", sa.Integer))
'''


def upgrade_tidegate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Add a migration that tidegate does not have."""
    scripts = folder / "migrations"
    shutil.copytree(ledger_database.SCRIPTS, scripts)
    (scripts / "versions" / f"{NEXT}_added.py").write_text(NEXT_SCRIPT)
    monkeypatch.setattr(ledger_database, "SCRIPTS", scripts)
    monkeypatch.setattr(ledger_database, "SCHEMA_REVISION", NEXT)


def tables(url: str) -> set[str]:
    engine = create_engine(url)
    try:
        return set(inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_reader_creates_no_tables_in_empty_database(url: str) -> None:
    assert Ledger.open_for_reading(url).streams() == []
    assert tables(url) == set()


def test_who_only_looks_makes_no_file(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "ledger.db"
    assert Ledger.open_for_reading(f"sqlite:///{file}").head(STREAM).seq == 0
    assert not file.parent.exists()


def test_who_only_looks_sees_what_others_have_written(url: str) -> None:
    Ledger.open(url).acquire(STREAM, "r1")
    assert Ledger.open_for_reading(url).streams() == [STREAM]


def test_empty_database_is_migrated_to_this_version(url: str) -> None:
    assert migrate_database(url) == (None, SCHEMA_REVISION)
    assert "tidegate_heads" in tables(url)
    assert migrate_database(url) == (SCHEMA_REVISION, SCHEMA_REVISION)


def test_older_schema_is_refused_except_by_migration(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.open(url).acquire(STREAM, "r1")
    before = tables(url)
    upgrade_tidegate(monkeypatch, tmp_path)
    for opened in (Ledger.open, Ledger.open_for_reading):
        with pytest.raises(SettingsInvalid, match="tidegate migrate"):
            opened(url)
    assert tables(url) == before
    assert migrate_database(url) == (SCHEMA_REVISION, NEXT)
    assert tables(url) == before | {"tidegate_added"}
    assert Ledger.open(url).streams() == [STREAM]


def test_newer_schema_is_refused_even_by_migration(url: str) -> None:
    Ledger.open(url)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE tidegate_schema SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(SettingsInvalid, match="newer one"):
        migrate_database(url)


@pytest.mark.parametrize("change", ["DROP COLUMN seq", "RENAME TO other_table"])
def test_ledger_of_other_tables_names_another_version(url: str, change: str) -> None:
    Ledger.open(url).acquire(STREAM, "r1")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE tidegate_heads {change}"))
    engine.dispose()
    with pytest.raises(SettingsInvalid, match="another version of tidegate made it"):
        Ledger.open(url).head(STREAM)


def test_file_of_another_kind_is_no_ledger(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_bytes(b"anything but a database" * 100)
    for opened in (Ledger.open, Ledger.open_for_reading):
        with pytest.raises(SettingsInvalid, match=r"file is not a database. Correct TIDEGATE_LEDGER"):
            opened(f"sqlite:///{file}")


@pytest.mark.parametrize("url", ["mysql://host/db", "duckdb:///x.db", "postgresql+psycopg2://host/db"])
def test_other_databases_and_drivers_are_refused(url: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"A ledger cannot be in .*Write sqlite:///"):
        Ledger.open_for_reading(url)
