"""The command's root: what there is, in the order of a user's day."""

from __future__ import annotations

from importlib import import_module

import click

from tidegate import __version__
from tidegate.arrow import keep_pandas_out

# Command -> the module that holds it. Imported when it is asked for: Spark and Airflow take their time.
_MODULES = {
    "demo": "stack",
    "up": "stack",
    "down": "stack",
    "test": "cases",
    "simulate": "cases",
    "validate": "batches",
    "plan": "batches",
    "run": "batches",
    "drain": "batches",
    "status": "batches",
    "state": "reading",
    "emissions": "reading",
    "quarantine": "reading",
    "explain": "explain",
    "compact": "compact",
    "doctor": "doctor",
}


class _Commands(click.Group):
    """Finds a command in the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        keep_pandas_out()
        command = getattr(import_module(f"tidegate.cli.{_MODULES[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Micro-batch ETL for Kafka that lets out only what matters, exactly once.

    Settings come from the environment: TIDEGATE_HOME, TIDEGATE_KAFKA, TIDEGATE_LEDGER, TIDEGATE_LAKE,
    TIDEGATE_PIPELINES, TIDEGATE_SQL. Exit codes: 0 done, 1 a retry can help, 2 it cannot.
    """
