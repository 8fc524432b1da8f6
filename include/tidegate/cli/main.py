"""The command's root: what there is, in the order of a user's day."""

from __future__ import annotations

import click

from tidegate import __version__
from tidegate.cli import batches, cases, doctor, reading, stack


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Micro-batch ETL for Kafka that lets out only what matters, exactly once.

    Settings come from the environment: TIDEGATE_HOME, TIDEGATE_KAFKA, TIDEGATE_LEDGER, TIDEGATE_LAKE,
    TIDEGATE_PIPELINES. Exit codes: 0 done, 1 a retry can help, 2 it cannot.
    """


for command in (
    stack.demo,
    stack.up,
    stack.down,
    cases.test,
    cases.simulate,
    batches.validate,
    batches.plan,
    batches.run,
    batches.status,
    reading.state,
    reading.emissions,
    reading.quarantine,
    doctor.doctor,
):
    cli.add_command(command)
