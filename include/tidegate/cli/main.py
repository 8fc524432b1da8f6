"""The root of the command line: all commands, in the order of a user's day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import click

from tidegate import __version__
from tidegate.arrow import keep_pandas_out
from tidegate.cli.commands import COMMANDS

_IN_TIDEGATE_DEV = ("demo", "up", "down")
"""The commands that another distribution adds; without it, the message says which one."""


class LazyGroup(click.Group):
    """A group that imports the module of a command when it is called, or when its help is shown.

    See https://click.palletsprojects.com/en/stable/complex/#lazily-loading-subcommands. Other distributions
    add commands by an entry point of the group `tidegate.commands`: a mapping of names to modules, as
    `tidegate.cli.commands.COMMANDS` is. A command has the same name in its module.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for modules in (*_extensions(), COMMANDS) for name in modules]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # The entry points are read last: that takes longer than the import of a command.
        module = COMMANDS.get(cmd_name) or next(
            (modules[cmd_name] for modules in _extensions() if cmd_name in modules), None
        )
        if module is not None:
            command: click.Command = getattr(import_module(module), cmd_name)
            return command
        if cmd_name in _IN_TIDEGATE_DEV:
            ctx.fail(
                f"`tidegate {cmd_name}` needs the package tidegate-dev, which is not installed here: "
                "pip install tidegate-dev."
            )
        return None


def _extensions() -> Iterator[Mapping[str, str]]:
    """Yield the commands of each other distribution, as name -> module."""
    from importlib.metadata import entry_points  # late: few calls need it

    for entry in entry_points(group="tidegate.commands"):
        yield entry.load()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Micro-batch ETL for Kafka that emits only real changes, exactly once.

    Settings come from the environment: TIDEGATE_HOME, TIDEGATE_KAFKA, TIDEGATE_LEDGER, TIDEGATE_LAKE,
    TIDEGATE_PIPELINES, TIDEGATE_SQL. Exit codes: 0 done, 1 a retry can help, 2 it cannot.

    Names of commands and pipelines are completed after `eval "$(_TIDEGATE_COMPLETE=bash_source tidegate)"`
    (zsh_source, fish_source).
    """
    keep_pandas_out()
