"""Every `tidegate` command in the pages exists, with its options and as many arguments as it takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidegate.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]


def commands() -> Iterator[str]:
    """Yield the lines of shell blocks that run `tidegate`."""
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("tidegate "):
                    yield line


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_a_command_of_a_page_exists(line: str) -> None:
    command: click.Command = cli
    words = shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group):
        subcommand = command.get_command(click.Context(command), words.pop(0))
        assert subcommand is not None
        command = subcommand
    arguments = [option for option in command.params if isinstance(option, click.Argument)]
    _, rest, order = command.make_parser(click.Context(command)).parse_args(words)
    assert rest == []
    assert {argument for argument in arguments if argument.required} <= set(order)
