"""doctor, migrate: what an operator needs now and then."""

from __future__ import annotations

import click

from tidegate.cli.options import as_json, pipeline_names


@click.command()
@click.argument("pipeline", required=False, shell_complete=pipeline_names)
@click.option("--accept-gap", is_flag=True, help="Go on past offsets of PIPELINE that Kafka has deleted.")
@click.option(
    "--drop-plan", is_flag=True, help="Forget PIPELINE's planned, uncommitted batch; the next run plans anew."
)
@click.option(
    "--reconcile",
    is_flag=True,
    help="Find out what PIPELINE's Kafka and SQL sinks have, and send again what they have lost.",
)
@click.option(
    "--progress",
    "said",
    multiple=True,
    metavar="SINK=BATCH",
    help="With --reconcile, where a topic does not tell: the newest batch that it has as a whole.",
)
@click.option("--deep", is_flag=True, help="Read every file that the next batches need, and compare digests.")
@click.option("--generation", type=int, help="With one of these: another one than in PIPELINE's file.")
@as_json
def doctor(
    pipeline: str | None,
    accept_gap: bool,
    drop_plan: bool,
    reconcile: bool,
    said: tuple[str, ...],
    deep: bool,
    generation: int | None,
    as_json: bool,
) -> None:
    """Check the settings, the stores and every pipeline (or PIPELINE); say what resolves what is wrong."""
    if (accept_gap or drop_plan or reconcile) and pipeline is None:
        raise click.UsageError("--accept-gap, --drop-plan and --reconcile need a PIPELINE.")
    if said and not reconcile:
        raise click.UsageError("--progress goes with --reconcile.")
    if generation is not None and not (accept_gap or drop_plan or reconcile):
        raise click.UsageError("--generation goes with --accept-gap, --drop-plan or --reconcile.")
    from tidegate.cli import doctor

    doctor.doctor(pipeline, accept_gap, drop_plan, reconcile, said, deep, generation, as_json)


@click.command()
@as_json
def migrate(as_json: bool) -> None:
    """Bring the ledger to the schema of this version of tidegate; a database without tables gets them.

    Run it as the database's owner, when nothing of the version before is at work any more.
    """
    from tidegate.cli import migrate

    migrate.migrate(as_json)
