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
from tidegate_dev import commands as dev_commands

HEAVY = frozenset(
    ("alembic", "confluent_kafka", "deltalake", "great_expectations", "kafka", "numpy", "pandas", "pyarrow")
) | {"pydantic", "pyspark", "rich", "sqlalchemy", "sqlglot", "yaml"}
COMMANDS = sorted(cli.list_commands(click.Context(cli)))
PROGRAM = (
    "import sys; from tidegate.cli import cli; cli.main({arguments!r}, standalone_mode=False);"
    "print(*({names!r} & sys.modules.keys()), file=sys.stderr)"
)


def imported(*arguments: str, **environment: str) -> set[str]:
    """Return the heavy packages that the command has imported when it is done."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arguments=list(arguments), names=set(HEAVY))],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.process
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), *((name, "--help") for name in COMMANDS)])
def test_help_imports_none_of_them(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) == set()


@pytest.mark.process
def test_status_imports_only_ledger_and_tables(tmp_path: Path) -> None:
    imported("status", TIDEGATE_HOME=str(tmp_path))  # the first use makes the ledger, with Alembic
    assert imported("status", TIDEGATE_HOME=str(tmp_path)) == {"rich", "sqlalchemy"}


@pytest.mark.spark
@pytest.mark.broker
def test_status_of_a_batch_imports_kafka_client(world: World) -> None:
    world.stock(10, 5, 0)
    world.run()
    assert imported("status", **world.environment) == {"kafka", "rich", "sqlalchemy"}


@pytest.mark.process
def test_validate_imports_only_the_grammar() -> None:
    assert imported("validate") <= {"numpy", "pyarrow", "pydantic", "rich", "sqlglot", "yaml"}


def modules_at_the_top(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)} | {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }


# The package itself and `tidegate.sinks` import nothing: the latter lists the kinds of sinks.
LIGHT = {
    "click",
    "tidegate",
    "tidegate.sinks",
    "tidegate.cli.new_generation",
    "tidegate.cli.options",
    "tidegate.cli.events",
    "tidegate.cli.output",
    "tidegate.clock",
    "tidegate.errors",
    "tidegate.garbage",
    "tidegate.numerals",
}


def test_commands_import_slow_modules_late() -> None:
    for path in Path(commands.__file__).parent.glob("*.py"):
        modules = modules_at_the_top(path)
        assert {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names} <= LIGHT, (
            path
        )


def test_no_command_imports_another_command() -> None:
    for path in Path(commands.__file__).parent.glob("*.py"):
        assert "tidegate.cli.commands." not in path.read_text(), path


@pytest.mark.process
def test_a_command_imports_only_its_own_module() -> None:
    program = (
        "import sys; from tidegate.cli import cli; cli.main(['plan', '--help'], standalone_mode=False);"
        "print(*(name for name in sys.modules if name.startswith('tidegate.cli.commands.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "tidegate.cli.commands.plan"


def test_listed_sentence_begins_the_help() -> None:
    root = click.Context(cli)
    for name, sentence in {**commands.COMMANDS, **dev_commands.COMMANDS}.items():
        command = cli.get_command(root, name)
        assert command is not None
        assert " ".join((command.help or "").split()).startswith(sentence), name
        assert command.get_short_help_str(1000) == click.Command(name, help=sentence).get_short_help_str(1000)
