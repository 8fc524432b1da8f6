"""The command as a user meets it: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.model.files import made, several_sources
from tests.world import NOW_MS, World, key_of
from tidegate.batch import Trigger, plan_batch
from tidegate.cli import cli
from tidegate.cli.commands.plan import range_rows
from tidegate.cli.commands.test import _case_files
from tidegate.errors import SettingsInvalid
from tidegate.ledger.records import OffsetRange
from tidegate.yaml.load import parse_case_pipeline

pytestmark = pytest.mark.process

TIDEGATE = Path(sys.executable).with_name("tidegate")
CASE = """\
name: {name}
pipeline: {pipeline}
input:
  - {{value: {{storeId: s1, id: 1, quantity: 10}}, timestamp: 1000}}
  - {{value: {{storeId: s1, id: 1, quantity: 0}}, timestamp: 2000}}
expect:
  emissions:
    '{{"storeId":"s1","id":1}}': [{{value: {{isAvailable: true}}}}, {{value: {{isAvailable: {second}}}}}]
"""


def tidegate(world_or_home: World | Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    if isinstance(world_or_home, World):
        settings = world_or_home.environment
    else:
        settings = {
            "TIDEGATE_HOME": str(world_or_home),
            "TIDEGATE_PIPELINES": str(world_or_home / "pipelines"),
        }
    return run([str(TIDEGATE), *arguments], settings, **more)


def run(command: Sequence[str], settings: Mapping[str, str], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command with these settings of tidegate, and with no other."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    return subprocess.run(
        command,
        env={**environment, **settings, **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipelines").mkdir()
    return tmp_path


def test_help_lists_every_command_with_a_sentence(folder: Path) -> None:
    shown = tidegate(folder, "--help").stdout
    for command in ("demo", "up", "test", "simulate", "validate", "plan", "run", "status", "state", "doctor"):
        assert f"  {command} " in shown
    for setting in ("HOME", "KAFKA", "LEDGER", "LAKE", "PIPELINES", "SQL"):
        assert f"TIDEGATE_{setting}" in shown


def test_unknown_command_exits_with_code_2(folder: Path) -> None:
    result = tidegate(folder, "rnu")
    assert result.returncode == 2
    assert "No such command" in result.stderr


@pytest.mark.parametrize("command", ["demo", "up", "down"])
def test_missing_tidegate_dev_is_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathlib.Path.glob", lambda folder, pattern: ())
    result = CliRunner().invoke(cli, [command])
    assert result.exit_code == 2
    assert "pip install tidegate-dev" in result.output
    assert f"  {command} " not in CliRunner().invoke(cli, ["--help"]).stdout


def test_validate_lists_mistakes_with_line_and_fix(folder: Path) -> None:
    file = folder / "pipelines" / "p.yaml"
    file.write_text(
        "pipeline: p\nsource: {topics: [t], format: jsn}\nstages:\n  - name: s\n    emit: {on: chnge}\n"
    )
    result = tidegate(folder, "validate")
    assert result.returncode == 2
    assert f"{file}:2: source.format" in result.stderr
    assert f"{file}:5: stages.0.emit" in result.stderr
    assert "Traceback" not in result.stderr


def test_validate_as_json_lists_the_problems(folder: Path) -> None:
    (folder / "pipelines" / "p.yaml").write_text("pipeline: p\n")
    result = tidegate(folder, "validate", "--json")
    assert result.returncode == 2
    assert {problem["field"] for problem in json.loads(result.stdout)} >= {"source", "stages"}


def test_missing_pipeline_lists_existing_ones(folder: Path) -> None:
    (folder / "pipelines" / "other.yaml").write_text("")
    result = tidegate(folder, "plan", "availability")
    assert result.returncode == 2
    assert "other" in result.stderr


def test_missing_kafka_settings_are_named(world: World) -> None:
    result = tidegate(world, "plan", "availability", TIDEGATE_KAFKA="")
    assert result.returncode == 2
    assert "Set TIDEGATE_KAFKA" in result.stderr


@pytest.mark.broker
def test_unreachable_broker_is_one_transient_line(world: World) -> None:
    impatient = (
        "from tidegate import cli; from tidegate.kafka import log; log._API_TIMEOUT_MS = 2_000; cli.main()"
    )
    command = [sys.executable, "-c", impatient, "plan", "availability"]
    result = run(command, world.environment, TIDEGATE_KAFKA="127.0.0.1:1")
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "127.0.0.1:1 does not answer" in result.stderr


def test_unreadable_kafka_settings_hide_the_password(world: World) -> None:
    result = tidegate(world, "plan", "availability", TIDEGATE_KAFKA='{"sasl.password": "hunter2"')
    assert result.returncode == 2
    assert "hunter2" not in result.stderr + result.stdout


def test_plan_names_the_source_of_topics() -> None:
    pipeline = parse_case_pipeline(several_sources(), "p.yaml")
    ranges = (OffsetRange("orders-eu", 0, 0, 5), OffsetRange("payments", 1, 2, 2))
    rows = [(row["source"], row["topic"], row["offsets"]) for row in range_rows(pipeline, ranges)]
    assert rows == [("orders", "orders-eu", 5), ("payments", "payments", 0)]
    assert "source" not in range_rows(made(), ranges)[0]


@pytest.mark.broker
def test_a_batch_from_plan_to_state(world: World) -> None:
    def output(*arguments: str) -> Any:
        result = tidegate(world, *arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    world.stock(10, 5, 0, timestamp_ms=1000)
    world.send({"value": b"{oops", "key": b"k", "timestamp_ms": 1000})
    assert sum(row["offsets"] for row in output("plan", "availability")["ranges"]) == 4
    counts = output("run", "availability")["counts"]
    expected = {"read": 4, "used": 3, "quarantined": 1, "idempotent-update-skip": 1, "emitted": 2}
    assert {name: counts[name] for name in expected} == expected
    assert output("run", "availability")["batch"] is None
    assert output("status")[0]["batch"] == 1
    assert output("status")[0]["lag"] == 0
    assert [(row["key"], row["value"]) for row in output("state", "availability")] == [
        (key_of(), {"isAvailable": False})
    ]
    assert [row["value"]["isAvailable"] for row in output("emissions", "availability")] == [True, False]
    row = output("quarantine", "list", "availability")
    assert (row["reason"], row["value"], row["offset"]) == ("malformed", "{oops", 3)
    assert all(row["ok"] == "ok" for row in output("doctor"))
    assert world.published() == {key_of(): [True, False]}


@pytest.mark.spark
def test_test_runs_case_files_and_shows_what_differs(world: World) -> None:
    pipeline = world.folder / "pipelines" / "availability.yaml"
    good, bad = world.folder / "good.yaml", world.folder / "bad.yaml"
    good.write_text(CASE.format(name="good", pipeline=pipeline, second="false"))
    bad.write_text(CASE.format(name="bad", pipeline=pipeline, second="true"))
    passed = tidegate(world, "test", str(good), "--cuts", "2")
    assert (passed.returncode, "1 of 1 cases passed" in passed.stdout) == (0, True)
    failed = tidegate(world, "test", str(good), str(bad))
    assert failed.returncode == 1
    assert '  - {"isAvailable": true}' in failed.stdout
    assert '  + {"isAvailable": false} at 2000' in failed.stdout


@pytest.mark.spark
def test_simulate_prints_emissions_with_their_reasons(world: World) -> None:
    given = world.folder / "input.jsonl"
    events = [{"value": {"storeId": "s1", "id": 1, "quantity": q}, "timestamp": q} for q in (10, 5, 0)]
    given.write_text("\n".join(map(json.dumps, events)))
    pipeline = world.folder / "pipelines" / "availability.yaml"
    result = tidegate(world, "simulate", str(pipeline), "--input", str(given))
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["value"], line["reason"], line["timestamp"]) for line in lines] == [
        ({"isAvailable": True}, "new", 10),
        ({"isAvailable": False}, "changed", 0),
    ]


@pytest.mark.broker
def test_doctor_names_what_is_wrong_and_the_remedy(world: World) -> None:
    plan_batch(world.app, world.pipeline, Trigger("r", NOW_MS))
    world.delete(world.source)
    result = tidegate(world, "doctor")
    assert result.returncode == 2
    assert "TopicMissing" in result.stdout
    assert "Create it" in " ".join(result.stdout.split())


def test_doctor_creates_no_folder(folder: Path) -> None:
    before = {path for path in folder.rglob("*") if path.is_dir()}
    tidegate(folder, "doctor", TIDEGATE_HOME=str(folder / "new"))
    assert {path for path in folder.rglob("*") if path.is_dir()} == before


def test_a_lake_without_rights_is_found_by_doctor(world: World) -> None:
    blocked = world.folder / "blocked"
    blocked.write_text("")
    result = tidegate(world, "doctor", TIDEGATE_LAKE=str(blocked / "lake"))
    assert result.returncode == 2
    assert "TIDEGATE_LAKE" in result.stdout


def test_question_without_terminal_says_so(tmp_path: Path) -> None:
    command = [str(TIDEGATE), "generation", "drop", "stock", "1"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert "no terminal on which to answer. Add `--yes`; nothing was done." in done.stderr


def test_folder_without_case_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsInvalid, match=r"no case files in .*empty"):
        list(_case_files([tmp_path / "a.yaml", tmp_path / "empty"], tmp_path))
