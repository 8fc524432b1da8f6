"""Who only reads the ledger waits for no writer, keeps none waiting, and sees one instant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, text
from sqlalchemy.exc import DBAPIError

from tests.ledger.test_ledger import STREAM, attempt, plan
from tidegate.errors import LedgerUnavailable
from tidegate.ledger import Ledger, Run, database, schema
from tidegate.ledger.database import for_reading, open_database

BATCHES = 60
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def engine(url: str, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A database in which whoever has to wait for a lock fails soon."""
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_MS", 500)
    return open_database(url)


@pytest.fixture
def ledger(engine: Engine) -> Ledger:
    ledger = Ledger(engine)
    lease = ledger.acquire(STREAM, "r1")
    lease.add_plan(plan(1))
    lease.add_attempt(attempt(1))
    return ledger


def test_a_reader_does_not_wait_for_a_writer(ledger: Ledger, engine: Engine) -> None:
    with engine.begin() as writer:
        writer.execute(text("UPDATE tidegate_heads SET seq = 7"))
        assert ledger.head(STREAM).seq == 0
        assert ledger.plan(STREAM, 1) == plan(1)
        assert ledger.run(STREAM, "r1") == Run("r1", 1)
        assert ledger.attempt(STREAM, 1) == attempt(1)
        assert ledger.state_manifests(STREAM) == []
        assert Ledger(open_database(engine.url.render_as_string(False))).streams() == [STREAM]
        writer.rollback()


def test_a_writer_does_not_wait_for_a_reader(ledger: Ledger, engine: Engine) -> None:
    with for_reading(engine).begin() as reader:
        before = reader.execute(text("SELECT epoch FROM tidegate_heads")).scalar_one()
        lease = ledger.acquire(STREAM, "r1")
        assert reader.execute(text("SELECT epoch FROM tidegate_heads")).scalar_one() == before
    assert lease.lease.epoch == before + 1


def test_who_only_reads_cannot_write(ledger: Ledger, engine: Engine) -> None:
    with pytest.raises(DBAPIError, match=r"readonly|read-only"), for_reading(engine).begin() as reader:
        reader.execute(delete(schema.plans))
    assert ledger.plan(STREAM, 1) == plan(1)
    ledger.acquire(STREAM, "r1").release()  # on the same connection


def test_two_writers_are_still_one_after_the_other(ledger: Ledger, engine: Engine) -> None:
    with engine.begin() as writer:
        writer.execute(text("UPDATE tidegate_heads SET seq = seq"))
        with pytest.raises(LedgerUnavailable):
            ledger.acquire(STREAM, "r1")


_WRITES = f"""
import sys
from tests.ledger.test_ledger import STREAM, attempt, plan
from tidegate.ledger import Ledger

held = Ledger.open(sys.argv[1]).acquire(STREAM, "writer")
for seq in range(1, {BATCHES} + 1):
    held.add_plan(plan(seq, f"r{{seq}}"))
    held.add_attempt(attempt(seq, f"a{{seq}}"))
    held.commit(plan(seq, f"r{{seq}}"), attempt(seq, f"a{{seq}}"))
"""


@pytest.mark.process
def test_each_read_sees_one_instant(url: str) -> None:
    ledger = Ledger.open(url)
    heads = []
    with subprocess.Popen([sys.executable, "-c", _WRITES, url], cwd=REPOSITORY) as writer:
        while writer.poll() is None or not heads:
            names = ledger.known_names(STREAM)
            assert sorted(names.committed) == list(range(1, names.head + 1))
            assert {int(name[1:]) for name in names.computed} <= {names.head + 1}
            heads.append(names.head)
    assert writer.returncode == 0
    assert heads == sorted(heads)
    assert ledger.head(STREAM).seq == BATCHES
