"""docs/install.md: its extras are those of the package, its files are without mistakes, its commands work."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli import cli
from tidegate.model.connection import Connection
from tidegate.yaml.load import load_defaults

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text()


def blocks(language: str) -> list[str]:
    """The code of a language on the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_it_has_every_extra_for_users() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE))
    assert set(project["optional-dependencies"]) - {"dev"} <= named


def test_checkout_dag_files_equal_the_page() -> None:
    pipelines, maintenance, _ = (ast.dump(ast.parse(code)) for code in blocks("python"))
    for name, expected in (("pipelines", pipelines), ("maintenance", maintenance)):
        module = ast.parse((ROOT / "dags" / f"{name}.py").read_text())
        assert ast.dump(ast.Module(module.body[1:], [])) == expected


def test_its_defaults_are_without_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    (text,) = blocks("yaml")
    (tmp_path / "defaults.yaml").write_text(text)
    assert load_defaults(tmp_path).dag_id_prefix == "shop_"


def test_its_first_pipeline_is_made_by_its_command(tmp_path: Path) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("tidegate ")]
    environment = {"TIDEGATE_PIPELINES": str(tmp_path / "pipelines"), "TIDEGATE_HOME": str(tmp_path)}
    init, validate, _ = commands
    for command in (init, validate):
        result = CliRunner().invoke(cli, shlex.split(command)[1:], env=environment)
        assert result.exit_code == 0, result.output


def test_every_connection_of_the_page_is_used() -> None:
    code = "".join(path.read_text() for path in (ROOT / "plugins" / "tidegate_airflow").glob("*.py"))
    code += "".join(f'"{Connection(kind).airflow_id}"' for kind in ("sql", "http", "iceberg", "clickhouse"))
    rows = PAGE.split("## Connections", 1)[1].split("## ", 1)[0]
    names = re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)
    assert len(names) == 8
    assert [name for name in names if name not in code] == []
