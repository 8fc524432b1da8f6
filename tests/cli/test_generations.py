"""`tidegate generation`: what a person sees of two generations side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.batch.committed import Committed
from tests.generations.two_generations import SINKS, Beside, filled
from tidegate.cli import cli
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Stream
from tidegate.yaml.load import load_pipeline


@pytest.fixture(scope="module")
def filled_generations(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Two generations that have read as much, which no test changes."""
    return filled(tmp_path_factory.mktemp("filled") / "home")


@pytest.fixture
def beside(filled_generations: Beside, tmp_path: Path) -> Beside:
    return filled_generations.copied(tmp_path / "home")


def run(beside: Beside, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["generation", *arguments], env=beside.old.environment)


def rows(beside: Beside, *arguments: str) -> Any:
    result = run(beside, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_list_shows_generation_in_charge(beside: Beside) -> None:
    columns = ("generation", "role", "batch", "goes out", "offsets behind", "file")
    assert [tuple(row[name] for name in columns) for row in rows(beside, "list", "visitors")] == [
        (1, "in charge", 3, "1-", 0, "visitors"),
        (2, "withholds", 3, "none", 0, "visitors_g2"),
    ]
    rows(beside, "promote", "visitors", "2", "--net")
    assert [(row["role"], row["goes out"]) for row in rows(beside, "list")] == [
        ("withholds", "1-3"),
        ("in charge", "4-"),
    ]


def test_new_copies_the_file_with_the_next_number(beside: Beside) -> None:
    (made,) = rows(beside, "new", "visitors")
    assert (made["generation"], made["in charge"], made["from batch"]) == (3, 1, None)
    copied = load_pipeline(Path(made["file"]))
    assert (copied.pipeline, copied.generation, Path(made["file"]).name) == (
        "visitors",
        3,
        "visitors_g3.yaml",
    )
    assert copied.stages == beside.old.pipeline.stages
    (again,) = rows(beside, "new", "visitors_g2")
    assert again["generation"] == 4


def test_new_takes_a_file_with_its_number(beside: Beside) -> None:
    own = beside._beside(7)
    (made,) = rows(beside, "new", str(own.file))
    assert (made["generation"], made["file"]) == (7, str(own.file))
    (filled,) = rows(beside, "new", "visitors_g7", "--from-batch", "2", "--yes")  # it has no batch yet
    assert (filled["generation"], filled["from batch"]) == (7, 2)
    assert beside.old.app.ledger.head(own.stream).seq == 1


def test_new_takes_a_file_whose_first_plan_failed(tmp_path: Path) -> None:
    """Somebody runs the file before the command: its start is refused, and the ledger has its number."""
    old = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db")
    old.commit(1, {"first": [("a", 1)], "second": [("a", 1)]})
    other = old.file.with_name("visitors_g2.yaml")
    other.write_text(old.file.read_text().replace("source:", "generation: 2\nsource:", 1))
    old.app.ledger.acquire(Stream("visitors", 2), "failed").release()
    command = ["generation", "new", "visitors_g2", "--from-batch", "1", "--yes", "--json"]
    result = CliRunner().invoke(cli, command, env=old.environment)
    assert result.exit_code == 0, result.output
    assert [json.loads(result.stdout)[0][name] for name in ("generation", "in charge")] == [2, 1]


@pytest.mark.parametrize("number", ["0", "4"])
def test_batch_that_does_not_exist_is_refused(beside: Beside, number: str) -> None:
    before = beside.old.app.ledger.streams()
    for options in ((), ("--yes",), ("--keep-state", "--yes")):
        refused = run(beside, "new", "visitors", "--from-batch", number, *options)
        assert "has no batch" in str(refused.exception)
        assert "Name one from 1 to 3" in str(refused.exception)
    assert beside.old.app.ledger.streams() == before


def test_file_that_does_not_fit_makes_no_generation(beside: Beside) -> None:
    file = beside.old.file
    file.write_text(file.read_text().replace("key: [customerId]", "key: [n]"))
    batches = ("--from-batch", "2", "--to-batch", "2")
    for command in (
        ("restate", "visitors", *batches),
        ("new", "visitors", "--from-batch", "2", "--keep-state"),
    ):
        for options in ((), ("--yes",)):
            refused = run(beside, *command, *options)
            assert "does not fit the pipeline file" in str(refused.exception)
            assert "`source.key` was" in str(refused.exception)
    assert [stream.generation for stream in beside.old.app.ledger.streams()] == [1, 2]


def test_generation_goes_on_with_its_own_file(beside: Beside) -> None:
    """The file of the running generation is as it was before the edit, so that it runs on."""
    beside.new.file.write_text(beside.new.file.read_text().replace("{m: n}", "{m: n + 1}"))
    shown = rows(beside, "new", "visitors", "--from-batch", "2", "--generation", "2")
    assert [(row["of"], row["is"]) for row in shown[:2]] == [
        ("stage first", "reused"),
        ("stage second", "computed"),
    ]
    refused = run(beside, "new", "visitors", "--from-batch", "2", "--generation", "2", "--keep-state")
    assert "--generation goes on with a computation" in refused.output


def test_batches_are_repeated_with_the_file_in_charge(beside: Beside) -> None:
    rows(beside, "promote", "visitors", "2", "--net")
    batches = ("--from-batch", "2", "--to-batch", "2")
    for command in (("new", "visitors", "--from-batch", "2"), ("restate", "visitors", *batches)):
        refused = run(beside, *command)
        assert refused.exit_code == 2
        assert "of generation 1 of visitors, and generation 2 is in charge" in refused.output
        assert "Name its file: visitors_g2." in refused.output


def test_new_begins_after_the_batch_of_instant(beside: Beside) -> None:
    (made,) = rows(beside, "new", "visitors", "--as-of", "2999-01-01", "--yes")
    assert made["from batch"] == 3
    refused = run(beside, "new", "visitors", "--as-of", "1999-01-01")
    assert "had no batch yet at 1999-01-01" in refused.output
    both = run(beside, "new", "visitors", "--as-of", "1999-01-01", "--from-batch", "1")
    assert (both.exit_code, "give one of them" in both.output) == (2, True)


def test_diff_counts_what_would_change_and_shows_examples(beside: Beside) -> None:
    diff = rows(beside, "diff", "visitors", "2")
    assert (diff["old"], diff["new"], diff["batches"]) == (1, 2, {"old": 3, "new": 3})
    seconds = next(sink for sink in diff["sinks"] if sink["sink"] == "sql:seconds")
    assert [seconds[name] for name in ("same", "changed", "added", "removed")] == [1, 2, 1, 1]
    assert seconds["emissions"] == {"old": {"new": 5}, "new": {"new": 5}}
    assert {"difference": "removed", "key": "gone", "old": '{"m":1}', "new": None} in seconds["examples"]
    shown = run(beside, "diff", "visitors", "2", "--examples", "1").stdout
    assert "visitors/2 after batch 3 against visitors/1 after batch 3" in shown
    assert ("changed" in shown, '{"m":20}' in shown, "gone" in shown) == (True, True, False)


def test_promote_rollback_and_drop_say_what_they_did(beside: Beside) -> None:
    assert (
        "visitors/2 is in charge: its batches from 1 on go out."
        in run(beside, "promote", "visitors", "2").stdout
    )
    assert "visitors/2 was in charge already" in run(beside, "promote", "visitors", "2").stdout
    assert (
        "visitors/1 is in charge: its batches from 4 on go out." in run(beside, "rollback", "visitors").stdout
    )
    assert "visitors/2 is dropped, with" in run(beside, "drop", "visitors", "2", "--yes").stdout
    assert run(beside, "drop", "visitors", "1").exit_code == 1  # nobody said yes
    assert isinstance(run(beside, "promote", "visitors", "2").exception, SettingsInvalid)


def test_nothing_goes_back_where_nothing_was_promoted(beside: Beside) -> None:
    error = run(beside, "rollback", "visitors").exception
    assert isinstance(error, SettingsInvalid)
    assert "No generation of visitors was in charge before" in str(error)


def test_status_and_doctor_tell_that_a_generation_withholds(beside: Beside) -> None:
    status = CliRunner().invoke(cli, ["status", "--json"], env=beside.old.environment)
    rows = {row["generation"]: row for row in json.loads(status.stdout)}
    assert (rows[2]["condition"], rows[2]["published"]) == ("withheld", "")
    assert rows[1]["condition"] != "withheld"
    assert "sql:seconds" in rows[1]["published"]


def test_promotion_with_approval_says_how_and_who(beside: Beside) -> None:
    defaults = "dag_id_prefix: shop_\nairflow: {approve_promotion: true}\n"
    (beside.old.file.parent / "defaults.yaml").write_text(defaults)
    refused = run(beside, "promote", "visitors", "2").exception
    assert isinstance(refused, SettingsInvalid)
    assert "Trigger the DAG shop_visitors.promote with the generation 2" in str(refused)
    assert "`--approved-by NAME`" in str(refused)
    (promoted,) = rows(beside, "promote", "visitors", "2", "--approved-by", "anna")
    assert (promoted["is_new"], promoted["approved_by"]) == (True, "anna")


def test_run_says_that_its_batch_is_withheld(beside: Beside) -> None:
    """Both runs have been: they are found in the ledger, and nothing is computed."""
    withheld = beside.new.app.ledger.plan(beside.new.stream, 3)
    sent = beside.old.app.ledger.plan(beside.old.stream, 3)
    assert withheld is not None
    assert sent is not None
    for name, plan, is_withheld in [("visitors_g2", withheld, True), ("visitors", sent, False)]:
        arguments = ["run", name, "--run-id", plan.run_id]
        shown = CliRunner().invoke(cli, arguments, env=beside.old.environment, catch_exceptions=False)
        assert ("tidegate generation promote visitors 2" in shown.stdout) is is_withheld
        result = CliRunner().invoke(cli, [*arguments, "--json"], env=beside.old.environment)
        assert json.loads(result.stdout)["withheld"] is is_withheld


def test_new_keeps_the_comment_of_the_number(beside: Beside) -> None:
    file = beside.old.file
    file.write_text(file.read_text().replace("source:", "generation: 1   # state: its own\nsource:", 1))
    (made,) = rows(beside, "new", "visitors")
    assert "generation: 3   # state: its own" in Path(made["file"]).read_text()
