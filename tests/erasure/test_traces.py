"""Erased keys in the ledger and in Data Docs, on SQLite and PostgreSQL; and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from sqlalchemy import select

from tests.batch.committed import Committed
from tests.erasure.canary import KEY, VALUE, Canary, traces_of
from tests.manifests import manifest_ref
from tidegate.cli import cli
from tidegate.erasure.keys import ErasedKeys
from tidegate.erasure.steps import redaction
from tidegate.errors import SinkRefused
from tidegate.ledger import Attempt, QualityResult, Stream, schema
from tidegate.quality.site import PageName

RESULT = QualityResult(
    attempt="a",
    try_number=1,
    check_number=1,
    expectation=1,
    suite="s",
    suite_digest="0f",
    target="the emissions of first",
    type="expect_column_values_to_not_be_null",
    column_names=("n",),
    severity="warning",
    passed=False,
    observed=f"largest: {VALUE}",
    evaluated_rows=2,
    unexpected_rows=1,
    unexpected_share=0.5,
    failing=({"key": KEY, "n": str(VALUE)},),
    error=None,
    note="",
    page="visitors/g1/2026-01-31/page.html",
)


def ledger_text(canary: Canary) -> str:
    """Return the text of all rows of the ledger."""
    with canary.app.ledger._engine.begin() as connection:
        tables = schema.metadata.sorted_tables
        return str([connection.execute(select(table)).all() for table in tables])


def write_page(canary: Committed, seq: int, text: str) -> Path:
    """A page of Data Docs with its results."""
    folder = Path(canary.app.settings.data_docs) / "visitors" / "g1" / "2026-01-31"
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{PageName(seq, 1, 's', 1, 'passed')}.html"
    page.write_text(text)
    page.with_suffix(".json").write_text("{}")
    return page


def test_ledger_and_docs_show_no_erased_key(tmp_path: Path, url: str) -> None:
    canary = Canary(tmp_path / "home", ledger=url)
    canary.fill()
    lease = canary.app.ledger.acquire(canary.stream, "test")
    lease.add_quality(1, [RESULT])
    lease.add_quality(2, [replace(RESULT, failing=(), observed="2 of 3")])
    lease.note_failure(2, "publish", SinkRefused(f"The emission of key '{KEY}' is too large"))
    lease.release()
    pages = [write_page(canary, 1, str(VALUE)), write_page(canary, 2, f"<td>{KEY}</td>")]
    other = write_page(canary, 2_000, "a page")
    (certificate,) = canary.erase()
    assert KEY not in ledger_text(canary)
    assert str(VALUE) not in ledger_text(canary)
    assert not any(page.exists() or page.with_suffix(".json").exists() for page in pages)
    assert other.exists()
    assert (other.parent / "index.html").read_text().count("batch ") == 1
    assert certificate.covers(KEY)
    first, second = (canary.app.ledger.quality(canary.stream, seq)[0] for seq in (1, 2))
    assert (first.failing, first.note, second.observed) == ((), "its samples were erased", "2 of 3")
    if url.startswith("sqlite"):
        assert traces_of(tmp_path) == {KEY: [], str(VALUE): []}


def test_only_whole_occurrences_are_redacted() -> None:
    redacted = redaction(ErasedKeys(("7", 'a"b'), ("customer",)))
    assert redacted("key 7 of 17, not 7.5x") == "key (erased) of 17, not (erased).5x"
    assert redacted('a\\"b and a"b') == "(erased) and (erased)"


def invoke(canary: Canary, *arguments: str) -> Any:
    return CliRunner().invoke(cli, ["erase", "visitors", *arguments], env=canary.environment)


def test_command_shows_its_plan_before_it_erases(tmp_path: Path) -> None:
    canary = Canary(tmp_path / "home")
    canary.fill()
    shown = invoke(canary, "--key", KEY)
    assert shown.exit_code == 4, shown.output
    for part in (
        "outbox first: 2 rows, 2 files to rewrite",
        "quarantine: 2 rows",
        "sql:newest",
        "source topics",
    ):
        assert part in " ".join(shown.output.split())
    assert canary.app.ledger.head(canary.stream).seq == 3
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n\nnever-seen\n")
    done = invoke(canary, "--keys-from", str(file), "--yes", "--by", "dpo", "--json")
    assert done.exit_code == 0, done.output
    (certificate,) = json.loads(done.stdout)["done"]
    assert (certificate["decided_by"], len(certificate["keys"]), certificate["batch"]) == ("dpo", 2, 4)
    listed = json.loads(invoke(canary, "--certificates", "--json").stdout)
    assert listed == [certificate]
    assert invoke(canary, "--key", KEY).exit_code == 0


def test_command_takes_the_name_of_a_file(tmp_path: Path) -> None:
    canary = Canary(tmp_path / "home")
    canary.fill()
    text = canary.file.read_text().replace("source:", "generation: 2\nsource:", 1)
    canary.file.with_name("edited.yaml").write_text(text)
    shown = CliRunner().invoke(cli, ["erase", "edited", "--key", KEY], env=canary.environment)
    assert (shown.exit_code, "visitors/1: 1 key" in shown.output) == (4, True), shown.output


def test_pipeline_that_looks_keys_up_is_named(tmp_path: Path) -> None:
    canary = Canary(tmp_path / "home")
    canary.fill()
    reader = Stream("reader", 1)
    pin = {"pipeline": "visitors", "generation": 1, "seq": 1, "stage": "first"}
    plan = replace(canary.planned(1), stream=reader, lookups={"visitors/first": pin})
    lease = canary.app.ledger.acquire(reader, "test")
    lease.add_plan(plan)
    lease.commit(plan, Attempt(reader, 1, manifest_ref("a"), {}))
    lease.release()
    shown = " ".join(invoke(canary, "--key", KEY).output.split())
    assert "the pipeline reader looks its state up, and has copies under keys of its own" in shown


def test_command_goes_on_without_keys(tmp_path: Path) -> None:
    canary = Canary(tmp_path / "home")
    canary.fill()
    stopped = CliRunner().invoke(
        cli,
        ["erase", "visitors", "--key", KEY, "--yes"],
        env=canary.environment | {"TIDEGATE_FAILPOINTS": "erase.remove=raise"},
    )
    assert stopped.exit_code == 1
    resumed = invoke(canary, "--yes")
    assert resumed.exit_code == 0, resumed.output
    assert traces_of(canary.folder) == {KEY: [], str(VALUE): []}
    assert "No erasure is to go on" not in resumed.output
