"""What is answered after an erasure: that a key was erased, and not that it had never been there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update

from tests.cli.test_check import write_suite
from tests.erasure.canary import KEY, Canary
from tidegate.cli import cli
from tidegate.inspect.emissions import newest_emissions
from tidegate.inspect.key_history import key_history
from tidegate.ledger import schema


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    made = Canary(tmp_path / "home")
    made.fill()
    return made


def run(canary: Canary, *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=canary.environment)


def test_counts_add_up_after_an_erasure(canary: Canary) -> None:
    with canary.app.ledger._engine.begin() as connection:
        of_batch = {"": {"read": 2, "used": 2}, "second": {"emitted": 2}}
        is_first = schema.attempts.c.seq == 1
        connection.execute(update(schema.attempts).where(is_first).values(counts=of_batch))
    write_suite(canary.folder, "counts", {"type": "expect_counts_to_add_up", "kwargs": {}})
    check = ("check", "visitors", "--suite", "counts", "--batch")
    assert run(canary, *check, "1").exit_code == 0
    canary.erase()
    for batch in ("1", "4"):
        assert run(canary, *check, batch).exit_code == 0


def test_emissions_and_key_report_the_erasure(canary: Canary) -> None:
    assert run(canary, "emissions", "visitors").stderr == ""
    canary.erase()
    note = "Erased in batch 4 (certificate 1), and so not shown for {}: 1 key.\n"
    assert run(canary, "emissions", "visitors").stderr == note.format("the batches before it")
    assert run(canary, "emissions", "visitors", "--batch", "1").stderr == note.format("batch 1")
    history = key_history(canary.app, canary.stream, KEY)
    assert history is not None
    assert (history.batches, history.erased) == ((), 4)
    assert newest_emissions(canary.app, canary.stream, "second", KEY).erased == 4
    assert newest_emissions(canary.app, canary.stream, "second", "a").erased == 0
