"""The root of the command line: all commands, in the order of a user's day."""

from __future__ import annotations

import click

from tidegate import __version__
from tidegate.arrow import keep_pandas_out
from tidegate.cli.commands.batches import compact, drain, plan, run, status, validate
from tidegate.cli.commands.cases import simulate, test
from tidegate.cli.commands.generations import generation
from tidegate.cli.commands.local import demo, down, up
from tidegate.cli.commands.operating import doctor, migrate
from tidegate.cli.commands.quality import check, quality
from tidegate.cli.commands.quarantine import quarantine
from tidegate.cli.commands.reading import emissions, explain, history, state
from tidegate.cli.commands.recovering import recover
from tidegate.cli.commands.writing import init, schema

_COMMANDS = (
    *(demo, up, down, init, schema, test, simulate, validate, plan, run, drain, status, history),
    *(state, emissions, quarantine, explain, check, quality, generation, compact, doctor),
    *(recover, migrate),
)


class _Commands(click.Group):
    """Lists its commands in the order in which they were given."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.command(cls=_Commands, commands=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Micro-batch ETL for Kafka that emits only real changes, exactly once.

    Settings come from the environment: TIDEGATE_HOME, TIDEGATE_KAFKA, TIDEGATE_LEDGER, TIDEGATE_LAKE,
    TIDEGATE_PIPELINES, TIDEGATE_SQL. Exit codes: 0 done, 1 a retry can help, 2 it cannot.

    Names of commands and pipelines are completed after `eval "$(_TIDEGATE_COMPLETE=bash_source tidegate)"`
    (zsh_source, fish_source).
    """
    keep_pandas_out()
