"""`tidegate recover --choose adopt-ledger`: a copy of a ledger takes over the folders that it knows whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.app.test_owner import Restorable
from tidegate.app import App
from tidegate.app.owner import check_owner
from tidegate.errors import LedgerMismatch
from tidegate.ledger import schema
from tidegate.recovery import Situation, carry_out
from tidegate.recovery.adopt_ledger import AdoptLedger


@pytest.fixture
def stream(tmp_path: Path) -> Restorable:
    stream = Restorable(tmp_path)
    stream.published(1, emitted=1)
    return stream


def _moved(stream: Restorable) -> App:
    """The ledger in another database, whose tables were filled with the rows of the first one."""
    stream.app.ledger._engine.dispose()
    shutil.copy(stream.folder / "l.db", stream.folder / "moved.db")
    moved = stream.with_another_ledger("moved.db")
    with moved.ledger._engine.begin() as connection:
        connection.execute(update(schema.identity).values(ledger="moved"))
    return moved


def test_moved_ledger_takes_over_and_old_one_halts(stream: Restorable) -> None:
    before, moved = stream.app, _moved(stream)
    with pytest.raises(LedgerMismatch, match="--choose adopt-ledger"):
        check_owner(moved, stream.stream)
    situation = Situation(moved, stream.stream)
    proposal = AdoptLedger().propose(situation)
    assert proposal is not None
    assert carry_out(situation, proposal, "me") == ("The folder of visitors/1 belongs to the ledger moved.",)
    assert AdoptLedger().propose(situation) is None
    stream.app = moved
    stream.published(2, emitted=1)
    assert stream.keys() == ["k1", "k2"]
    with pytest.raises(LedgerMismatch, match="belongs to the ledger moved"):
        check_owner(before, stream.stream)


def test_ledger_without_the_folders_batches_is_refused(stream: Restorable) -> None:
    moved = _moved(stream)
    stream.published(2)
    with pytest.raises(LedgerMismatch, match=r"has batch 2 .* whose last batch is 1, .* cannot take over"):
        AdoptLedger().propose(Situation(moved, stream.stream))
    other = stream.with_another_ledger()
    with pytest.raises(LedgerMismatch, match="whose last batch is 0"):
        AdoptLedger().propose(Situation(other, stream.stream))


def test_restored_ledger_is_told_what_remains(stream: Restorable) -> None:
    stream.back_up()
    stream.published(2)
    stream.restore()
    with pytest.raises(LedgerMismatch, match=r"Restore the newest backup .* begin with a new `generation`"):
        AdoptLedger().propose(Situation(stream.app, stream.stream))


def test_own_folder_needs_no_adoption(stream: Restorable) -> None:
    assert AdoptLedger().propose(Situation(stream.app, stream.stream)) is None
