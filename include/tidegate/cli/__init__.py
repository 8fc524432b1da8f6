"""The `tidegate` command."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from tidegate.cli.main import cli
from tidegate.errors import SettingsInvalid, TidegateError
from tidegate.extras import missing_extra
from tidegate.signals import Terminated, raise_on_sigterm


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
