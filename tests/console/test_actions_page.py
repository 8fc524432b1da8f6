"""The page of actions: the command for each, or the parameters of a run in Airflow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from tests.console.pages import served, set_environment, visible_text
from tests.generations.two_generations import Beside
from tidegate.cli import cli
from tidegate.console.local import LocalHost

SQL_ONLY = "  - {kind: sql, table: seconds}"


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Two generations, the new one in charge, which no test changes."""
    promoted = Beside(tmp_path_factory.mktemp("promoted"), SQL_ONLY)
    promoted.fill()
    promoted.promote(promoted.new)
    return promoted


@pytest.fixture
def beside(promoted: Beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    beside = promoted.copied(tmp_path / "home")
    set_environment(monkeypatch, beside.old.environment)
    return beside


@pytest.fixture
def client(beside: Beside) -> Iterator[TestClient]:
    with served() as client:
        yield client


def codes(page: str) -> list[str]:
    return [unescape(code) for code in re.findall(r"<td class=\"text\"><code>(.*?)</code>", page)]


def page(client: TestClient, query: str = "") -> str:
    answer = client.get(f"/pipelines/visitors/actions{query}")
    assert answer.status_code == 200
    return answer.text


def test_commands_of_the_page_exist(client: TestClient) -> None:
    commands = codes(page(client, "?record=events/0/1"))
    assert len(commands) == 13
    for command in commands:
        name, *arguments = command.split()
        assert name == "tidegate"
        # `--help` ends each command before it does anything, and after its name was looked up
        words = [word for word in arguments if not word.startswith("-")][:2]
        is_group = words[0] in ("generation", "quarantine")
        result = CliRunner().invoke(cli, [*words[: 2 if is_group else 1], "--help"])
        assert result.exit_code == 0, command
        options = {word for word in arguments if word.startswith("--")}
        assert all(option in result.output for option in options), command


def test_record_in_quarantine_is_prefilled(client: TestClient) -> None:
    text = visible_text(page(client, "?record=events/0/1"))
    assert "tidegate quarantine discard visitors --record events/0/1" in text


def test_rollback_and_comparison_name_generations(client: TestClient) -> None:
    text = visible_text(page(client))
    assert "Roll back to generation 1" in text
    assert "tidegate generation diff visitors 1" in text


def test_position_that_is_none_is_refused(client: TestClient) -> None:
    assert client.get("/pipelines/visitors/actions?record=<b>").status_code == 422


@pytest.mark.airflow
def test_parameters_of_the_page_fit_the_dag(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate_airflow.triggers import read_request, run_params

    monkeypatch.setattr(LocalHost, "airflow", "")
    shown = [json.loads(code) for code in codes(page(client, "?record=events/0/1"))]
    assert len(shown) == 13
    for conf in shown:
        form = run_params()  # a `Param` remembers what it has resolved
        given = {name: form.pop(name).resolve(value) for name, value in conf.items()}
        read_request({**{name: param.resolve() for name, param in form.items()}, **given})
