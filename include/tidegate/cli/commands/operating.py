"""doctor, migrate: what an operator needs now and then."""

from __future__ import annotations

import click

from tidegate.cli.options import as_json, pipeline_names


@click.command()
@click.argument("pipeline", required=False, shell_complete=pipeline_names)
@click.option("--deep", is_flag=True, help="Read every file that the next batches need, and compare digests.")
@as_json
def doctor(pipeline: str | None, deep: bool, as_json: bool) -> None:
    """Check the settings, the stores and every pipeline (or PIPELINE); say what resolves what is wrong.

    It only reads. `tidegate recover PIPELINE` repairs a pipeline that cannot continue.
    """
    from tidegate.cli import doctor

    doctor.doctor(pipeline, deep, as_json)


@click.command()
@as_json
def migrate(as_json: bool) -> None:
    """Bring the ledger to the schema of this version of tidegate; a database without tables gets them.

    Run it as the database's owner, when nothing of the version before is at work any more.
    """
    from tidegate.cli import migrate

    migrate.migrate(as_json)
