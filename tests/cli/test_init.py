"""`tidegate init` and `tidegate schema`, and what commands say where there is no pipeline yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import cli
from tidegate.cli.output import INSTANTS, iso_instant
from tidegate.yaml.load import load_pipeline

ANSWERS = ("in", "orderId string, quantity int", "orderId", "threshold", "sql")
FLAGS = ("--topic", "in", "--columns", "a string, b int", "--key", "", "--emit", "change", "--sink", "kafka")


def run(folder: Path, *arguments: str, **options: Any) -> Result:
    environment = {
        "TIDEGATE_HOME": str(folder / "home"),
        "TIDEGATE_PIPELINES": str(folder / "pipelines"),
        "TIDEGATE_EXPECTATIONS": "",
        "TIDEGATE_LEDGER": "",
    }
    return CliRunner().invoke(cli, arguments, env=environment, **options)


def test_what_no_option_says_is_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, "init", "orders", input="\n".join(ANSWERS) + "\n")
    assert result.exit_code == 0, result.output
    pipeline = load_pipeline(tmp_path / "pipelines" / "orders.yaml")
    assert (pipeline.sources["source"].topics, pipeline.key_of(pipeline.stages[0])) == (("in",), ("orderId",))
    assert (pipeline.stages[0].emit.on, [sink.name for sink in pipeline.sinks]) == (
        *("threshold", ["sql:orders"]),
    )
    assert (tmp_path / "expectations" / "orders.json").is_file()
    assert run(tmp_path, "validate").exit_code == 0


def test_with_all_options_nothing_is_asked(tmp_path: Path) -> None:
    result = run(
        tmp_path, "init", "orders", *FLAGS, "--to", "out", "--schedule", "none", "--no-suite", input=""
    )
    assert result.exit_code == 0, result.output
    pipeline = load_pipeline(tmp_path / "pipelines" / "orders.yaml")
    assert (pipeline.schedule, pipeline.quality, pipeline.sinks[0].name) == (None, (), "kafka:out")
    assert pipeline.quarantine is not None
    assert pipeline.quarantine.alert is not None
    assert pipeline.quarantine.stop is not None


def test_the_grammar_for_editors_is_written_beside_it(tmp_path: Path) -> None:
    run(tmp_path, "init", "orders", *FLAGS)
    stored = json.loads((tmp_path / "pipelines" / "pipeline.schema.json").read_text())
    assert stored == json.loads(run(tmp_path, "schema").output)
    assert "dag_id_prefix" in json.loads(run(tmp_path, "schema", "defaults").output)["properties"]


def test_init_overwrites_no_existing_file(tmp_path: Path) -> None:
    run(tmp_path, "init", "orders", *FLAGS)
    file = tmp_path / "pipelines" / "orders.yaml"
    file.write_text("mine")
    result = run(tmp_path, "init", "orders", *FLAGS)
    assert "orders.json already exist. Choose another name" in str(result.exception)
    assert file.read_text() == "mine"


def test_init_without_answers_lists_the_options(tmp_path: Path) -> None:
    result = run(tmp_path, "init", "orders", input="")
    assert result.exit_code == 2
    assert "Give --topic, --columns" in result.output
    assert list(tmp_path.iterdir()) == []


def test_validate_without_pipelines_says_how_to_begin(tmp_path: Path) -> None:
    result = run(tmp_path, "validate")
    assert type(result.exception).__name__ == "SettingsInvalid"
    assert "`tidegate init NAME`" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_validate_looks_at_the_defaults_too(tmp_path: Path) -> None:
    run(tmp_path, "init", "orders", *FLAGS)
    defaults = tmp_path / "pipelines" / "defaults.yaml"
    defaults.write_text("airflow: {retires: 1}\n")
    for arguments in ((), (str(defaults),), (str(defaults.parent),)):
        result = run(tmp_path, "validate", *arguments)
        assert "defaults.yaml:1: airflow.retires" in str(result.exception)


def test_validate_of_folder_checks_its_files(tmp_path: Path) -> None:
    run(tmp_path, "init", "orders", *FLAGS)
    (tmp_path / "pipelines").rename(tmp_path / "mine")
    assert run(tmp_path, "validate", str(tmp_path / "mine")).output == "1 file checked, no mistakes.\n"
    (tmp_path / "empty").mkdir()
    empty = run(tmp_path, "validate", str(tmp_path / "empty"))
    assert f"There are no pipelines in {tmp_path / 'empty'}" in str(empty.exception)


def test_name_stands_for_the_file_of_its_pipeline(tmp_path: Path) -> None:
    run(tmp_path, "init", "orders", *FLAGS)
    assert run(tmp_path, "validate", "orders").output == "1 file checked, no mistakes.\n"
    for command in (("validate",), ("simulate", "--input", "-"), ("plan",)):
        wrong = run(tmp_path, *command, "ordres")
        assert "There is no such file. Did you mean `orders`?" in str(wrong.exception)
    assert json.loads(run(tmp_path, "validate", "other", "--json").stdout)[0]["fix"].startswith(
        f"{tmp_path / 'pipelines'} has: orders."
    )


@pytest.mark.spark
def test_name_stands_for_the_cases_of_its_pipeline(tmp_path: Path) -> None:
    run(tmp_path, "init", "orders", *FLAGS)
    run(tmp_path, "init", "sales", *FLAGS)
    for arguments, cases in ((("orders",), 1), ((), 2)):
        assert f"{cases} of {cases} cases passed" in run(tmp_path, "test", *arguments).output
    assert "ordres does not exist" in str(run(tmp_path, "test", "ordres").exception)


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "pipelines").write_text("a file, where a folder belongs")
    result = run(tmp_path, "init", "orders", *FLAGS)
    assert f"{tmp_path / 'pipelines' / 'orders.yaml'} cannot be written" in str(result.exception)


@pytest.mark.parametrize("from_stdin", [False, True])
def test_input_that_is_not_text_is_refused(tmp_path: Path, from_stdin: bool) -> None:
    run(tmp_path, "init", "orders", *FLAGS)
    file = tmp_path / "input.jsonl"
    file.write_bytes(b'{"value": "caf\xe9"}\n')
    given = "-" if from_stdin else str(file)
    result = run(tmp_path, "simulate", "orders", "--input", given, input=file.read_bytes())
    assert f"{given} is not text in UTF-8" in str(result.exception)


def test_status_without_batches_writes_nothing(tmp_path: Path) -> None:
    assert "`tidegate init NAME`" in " ".join(run(tmp_path, "status").output.split())
    assert list(tmp_path.iterdir()) == []  # no ledger either
    run(tmp_path, "init", "orders", *FLAGS)
    assert "`tidegate plan orders`" in " ".join(run(tmp_path, "status").output.split())


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("tidegate plan o", {"orders"}),
        ("tidegate compact orders r", {"returns"}),
        ("tidegate state ", {"orders", "returns"}),
        ("tidegate explain x", set()),
        ("tidegate doctor re", {"returns"}),
        ("tidegate val", {"validate"}),
    ],
)
def test_shells_complete_the_names_of_pipelines(tmp_path: Path, words: str, completed: set[str]) -> None:
    for name in ("orders", "returns"):
        run(tmp_path, "init", name, *FLAGS)
    (tmp_path / "pipelines" / "defaults.yaml").write_text("")
    environment = {
        "TIDEGATE_PIPELINES": str(tmp_path / "pipelines"),
        "_TIDEGATE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    result = CliRunner().invoke(cli, prog_name="tidegate", env=environment)
    assert {line.removeprefix("plain,") for line in result.output.split()} == completed


def test_people_see_times_and_programs_milliseconds() -> None:
    assert iso_instant(1_769_855_400_123) == "2026-01-31T10:30:00.123Z"
    assert iso_instant(2**60) == str(2**60)
    stored = {"timestamp", "at", "due_at", "window_start", "window_end"}
    assert stored | {"first_timestamp_ms", "last_timestamp_ms"} == INSTANTS
