"""What a command imports: what it takes to start is counted in modules, which no busy machine changes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.world import World
from tidegate.cli import cli, commands

HEAVY = frozenset(
    ("alembic", "confluent_kafka", "deltalake", "great_expectations", "kafka", "numpy", "pandas", "pyarrow")
) | {"pydantic", "pyspark", "rich", "sqlalchemy", "sqlglot", "yaml"}
COMMANDS = sorted(cli.list_commands(click.Context(cli)))
PROGRAM = (
    "import sys; from tidegate.cli import cli; cli.main({arguments!r}, standalone_mode=False);"
    "print(*({names!r} & sys.modules.keys()), file=sys.stderr)"
)


def imported(*arguments: str, **environment: str) -> set[str]:
    """Which of the heavy packages the command has imported when it is done."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arguments=list(arguments), names=set(HEAVY))],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), *((name, "--help") for name in COMMANDS)])
def test_help_imports_none_of_them(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) == set()


def test_status_imports_only_ledger_and_tables(tmp_path: Path) -> None:
    imported("status", TIDEGATE_HOME=str(tmp_path))  # the first use makes the ledger, with Alembic
    assert imported("status", TIDEGATE_HOME=str(tmp_path)) == {"rich", "sqlalchemy"}


@pytest.mark.spark
@pytest.mark.broker
def test_status_of_a_batch_imports_kafka_client(world: World) -> None:
    world.stock(10, 5, 0)
    world.run()
    assert imported("status", **world.environment) == {"kafka", "rich", "sqlalchemy"}


def test_validate_imports_only_the_grammar() -> None:
    assert imported("validate") <= {"numpy", "pyarrow", "pydantic", "rich", "sqlglot", "yaml"}


def test_command_declarations_import_only_click() -> None:
    for path in Path(commands.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        modules = {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)} | {
            alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
        }
        assert modules <= {
            "__future__",
            "datetime",
            "pathlib",
            "sys",
            "typing",
            "click",
            "tidegate.cli.options",
        }, path
