"""The `tidegate` command: all commands, in the order of a user's day, and its exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import NoReturn

import click

from tidegate import __version__
from tidegate.cli import commands
from tidegate.errors import SettingsInvalid, TidegateError
from tidegate.extras import missing_extra
from tidegate.imports import keep_pandas_out
from tidegate.signals import Terminated, raise_on_sigterm

_IN_TIDEGATE_DEV = ("demo", "up", "down")
"""The commands that another distribution adds; without it, the message says which one."""


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is called.

    See https://click.palletsprojects.com/en/stable/complex/#lazily-loading-subcommands. A package of commands
    lists them in `COMMANDS`; each one is in the module of its name, under its name.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_sentences())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in commands.COMMANDS:
            return _command(commands, cmd_name)
        for package in _extensions():
            if cmd_name in package.COMMANDS:
                return _command(package, cmd_name)
        if cmd_name in _IN_TIDEGATE_DEV:
            ctx.fail(
                f"`tidegate {cmd_name}` needs the package tidegate-dev, which is not installed here: "
                "pip install tidegate-dev."
            )
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands as click does, by the sentences in `COMMANDS`."""
        sentences = _sentences()
        limit = formatter.width - 6 - max(map(len, sentences))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, click.Command(name, help=sentence).get_short_help_str(limit))
                    for name, sentence in sentences.items()
                ]
            )


def _sentences() -> dict[str, str]:
    """Return each command -> the first sentence of its help, in the order of the list."""
    return dict(item for package in (*_extensions(), commands) for item in package.COMMANDS.items())


def _command(package: ModuleType, name: str) -> click.Command:
    # a command can have the name of a keyword of Python, which no function can have
    name = f"{name}_" if iskeyword(name) else name
    command: click.Command = getattr(import_module(f"{package.__name__}.{name}"), name)
    return command


def _extensions() -> list[ModuleType]:
    """Return the packages of commands of other distributions, whose names begin with `tidegate`.

    They are entry points of the group `tidegate.commands`.
    """
    # importlib.metadata would take 40 ms, a third of `--help`: it imports the email package, and reads the
    # entry points of every distribution.
    from configparser import ConfigParser
    from pathlib import Path

    parser = ConfigParser(delimiters="=")
    for folder in sys.path:
        parser.read(Path(folder).glob("tidegate*-info/entry_points.txt"))
    entries = parser["tidegate.commands"].values() if "tidegate.commands" in parser else ()
    return [import_module(entry) for entry in entries]


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


def main() -> None:
    """Run the command line, and exit.

    Exit codes: 0 done, 1 a retry can help, 2 it cannot, 3 another run works on the stream, 4 the jobs that
    `shadow` compares differ, 130 Ctrl-C, 143 SIGTERM.
    """
    raise_on_sigterm()
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__ or error, Terminated):
            sys.exit(Terminated.exit_code)
        if isinstance(error.__context__, EOFError):  # of a prompt without a terminal
            _exit_with(
                SettingsInvalid(
                    "The command asks before it acts, and there is no terminal on which to answer",
                    "Add `--yes`; nothing was done.",
                )
            )
        _exit_with(KeyboardInterrupt("Interrupted; nothing is half done, run it again to go on."))
    except TidegateError as error:
        _exit_with(error)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        _exit_with(missing)


def _exit_with(error: BaseException) -> NoReturn:
    from tidegate.cli.output import fail  # late: few calls need it

    sys.exit(fail(error))


__all__ = ["cli", "main"]
