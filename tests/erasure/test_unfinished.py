"""An erasure that is not finished, beside the commands that repair streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import create_engine, text

from tests.batch.committed import Committed
from tests.erasure.canary import KEY, Canary, traces_of
from tests.erasure.test_traces import ledger_text, write_page
from tests.generations.two_generations import Beside
from tidegate import failpoints
from tidegate.cli import cli
from tidegate.erasure import erase, plan_erasure, requested_keys
from tidegate.generations import drop_generation
from tidegate.inspect import stream_condition
from tidegate.ledger import Stream
from tidegate.ledger.facts import Recovery

SINKS = "  - {kind: sql, table: every, mode: append}\n  - {kind: table, stage: first}"


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    canary = Canary(tmp_path / "home")
    canary.fill()
    return canary


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    """Two generations that have the key; the second one is in charge."""
    beside = Beside(tmp_path / "home", SINKS.replace("every", "seconds"))
    beside.decide(beside.old, 3, [(KEY, 1)])
    beside.fill([(KEY, 10)])
    beside.promote(beside.new)
    return beside


def tidegate(stream: Committed, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], env=dict(stream.environment))


def done(stream: Committed, *arguments: str) -> str:
    result = tidegate(stream, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@contextmanager
def refused_deletions(stream: Committed, table: str) -> Iterator[None]:
    """The SQL sink refuses to delete rows."""

    def execute(statement: str) -> None:
        with closing(create_engine(stream.sql).connect()) as connection, connection.begin():
            connection.execute(text(statement))

    execute(f"CREATE TRIGGER refuse BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, 'never'); END")
    yield
    execute("DROP TRIGGER refuse")


def interrupted(stream: Committed, monkeypatch: pytest.MonkeyPatch, point: str, *arguments: str) -> None:
    """Run a command that fails at a failpoint."""
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", point)
    monkeypatch.setattr(failpoints, "_hits", Counter())
    assert tidegate(stream, *arguments).exit_code == 1
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")


def rows_of_key(stream: Committed, table: str) -> int:
    ((count,),) = stream.query(f"SELECT count(*) FROM {table} WHERE key = '{KEY}'")
    return count


def test_giving_up_still_erases_at_working_sinks(canary: Canary) -> None:
    with refused_deletions(canary, "every"):
        assert tidegate(canary, "erase", "visitors", "--key", KEY, "--yes").exit_code == 1
    done(canary, "recover", "visitors", "--choose", "give-up", "--yes")
    assert rows_of_key(canary, "every") == 0
    done(canary, "erase", "visitors", "--yes")
    assert traces_of(canary.folder)[KEY] == []


def test_certificate_names_the_sink_given_up(canary: Canary) -> None:
    with refused_deletions(canary, "every"):
        tidegate(canary, "erase", "visitors", "--key", KEY, "--yes")
        done(canary, "recover", "visitors", "--choose", "give-up", "--yes")
    done(canary, "erase", "visitors", "--yes")
    (certificate,) = canary.app.ledger.erasures(canary.stream)
    assert certificate.sinks["sql:every"] == (
        "sql:every: it keeps the keys, since batch 4, which deletes them, was given up. Delete them there "
        "yourself."
    )
    assert certificate.sinks["sql:newest"] == "sql:newest: all rows of the keys are deleted."


def test_refused_promotion_gives_up_no_deletion(beside: Beside) -> None:
    with refused_deletions(beside.old, "seconds"):
        tidegate(beside.old, "erase", "visitors", "--key", KEY, "--yes")
        result = tidegate(
            beside.old, "recover", "visitors", "--choose", "promote", "--generation", "1", "--yes"
        )
    assert "Let it go on: tidegate erase visitors --yes." in str(result.exception)
    assert beside.old.app.ledger.given_up(beside.new.stream) == []


def test_generation_with_unfinished_erasure_stays(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(beside.old, monkeypatch, "erase.rewrite=raise", "erase", "visitors", "--key", KEY, "--yes")
    result = tidegate(beside.old, "generation", "drop", "visitors", "1", "--yes")
    assert str(result.exception).startswith("Erasure 1 of visitors/1 is not finished")
    done(beside.old, "erase", "visitors", "--yes")
    done(beside.old, "generation", "drop", "visitors", "1", "--yes")
    assert [erasure.request for erasure in beside.old.app.ledger.erasures(beside.old.stream)] == [None]


def test_retired_pipeline_with_unfinished_erasure_stays(
    canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(canary, monkeypatch, "erase.rewrite=raise", "erase", "visitors", "--key", KEY, "--yes")
    canary.file.unlink()
    result = tidegate(canary, "recover", "visitors", "--choose", "forget", "--yes")
    assert str(result.exception).startswith("Erasure 1 of visitors/1 is not finished")
    done(canary, "erase", "visitors", "--yes")
    done(canary, "recover", "visitors", "--choose", "forget", "--yes")
    assert KEY not in ledger_text(canary)


@pytest.mark.parametrize(
    "point", ["ledger.begin_erasure=lose", "ledger.begin_erasure=raise@2", "ledger.forget_keys=lose"]
)
def test_killed_erasure_continues_in_every_generation(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    interrupted(beside.old, monkeypatch, point, "erase", "visitors", "--key", KEY, "--yes")
    done(beside.old, "erase", "visitors", "--yes")
    traces = traces_of(beside.old.folder, [KEY])[KEY]
    assert [file for file in traces if "/g1/published/" not in file] == []


def test_status_names_an_unfinished_erasure(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(canary, monkeypatch, "erase.rewrite=raise", "erase", "visitors", "--key", KEY, "--yes")
    (cause,) = stream_condition(canary.app, canary.stream).causes
    assert cause.condition.label == "halted"
    assert cause.fix.endswith("Let it go on: tidegate erase visitors --yes.")
    done(canary, "erase", "visitors", "--yes")
    assert stream_condition(canary.app, canary.stream).condition.label == "ok"


def test_leftovers_of_dropped_generations_are_named(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(beside.old, monkeypatch, "drop.delete=raise", "generation", "drop", "visitors", "1", "--yes")
    shown = tidegate(beside.old, "erase", "visitors", "--key", KEY).output
    folder = beside.old.app.lake(beside.old.stream).table_sink(None)
    assert f"its table sink keeps its rows. Delete {folder} yourself." in shown
    assert "Finish that: tidegate generation drop visitors 1." in shown
    done(beside.old, "generation", "drop", "visitors", "1", "--yes")
    assert "Finish that" not in tidegate(beside.old, "erase", "visitors", "--key", KEY).output


def test_pages_of_dropped_generations_lose_keys(beside: Beside) -> None:
    page = write_page(beside.old, 3, f"<td>{KEY}</td>")
    done(beside.old, "generation", "drop", "visitors", "1", "--yes")
    done(beside.old, "erase", "visitors", "--key", KEY, "--yes")
    assert not page.exists()


def test_sinks_lose_keys_of_dropped_generations(tmp_path: Path) -> None:
    beside = Beside(tmp_path / "home", "  - {kind: sql, table: seconds}")
    beside.decide(beside.old, 3, [(KEY, 1)])
    beside.fill([("c", 3)])
    beside.promote(beside.new)
    done(beside.old, "generation", "drop", "visitors", "1", "--yes")
    shown = tidegate(beside.old, "erase", "visitors", "--key", KEY).output
    assert "the emissions of visitors/1 were dropped with it" in shown
    done(beside.old, "erase", "visitors", "--key", KEY, "--yes")
    assert rows_of_key(beside.old, "seconds") == 0


def test_forgotten_pipeline_still_shows_its_certificates(canary: Canary) -> None:
    done(canary, "erase", "visitors", "--key", KEY, "--yes")
    canary.file.unlink()
    done(canary, "recover", "visitors", "--choose", "forget", "--yes")
    assert "visitors/1" in done(canary, "erase", "visitors", "--certificates")


def test_recoveries_of_dropped_generations_lose_keys(tmp_path: Path) -> None:
    beside = Beside(tmp_path / "home")
    beside.decide(beside.old, 3, [(KEY, 1), ("a", 3)])
    beside.fill([(KEY, 10)])
    beside.promote(beside.new)
    app = beside.old.app
    app.ledger.add_recovery(Recovery(Stream("visitors", 1), "give-up", f"The key {KEY} is too long", (), "x"))
    drop_generation(app, Stream("visitors", 1), "drop")
    keys = requested_keys(app, "visitors", None, [KEY])
    erase(app, plan_erasure(app, "visitors", keys), "me", lambda _: None)
    assert traces_of(tmp_path, [KEY]) == {KEY: []}
