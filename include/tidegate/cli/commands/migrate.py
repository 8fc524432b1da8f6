"""`tidegate migrate`: bring the ledger to the schema of this version."""

from __future__ import annotations

import click

from tidegate.cli.options import as_json
from tidegate.cli.output import out, show_object


@click.command()
@as_json
def migrate(as_json: bool) -> None:
    """Bring the ledger to the schema of this version of tidegate; a database without tables gets them.

    Run it as the database's owner, when nothing of the version before is at work any more.
    """
    from tidegate.ledger import migrate_database
    from tidegate.settings import Settings

    before, after = migrate_database(Settings.from_environment().ledger)
    if as_json:
        show_object({"before": before, "after": after})
    elif before == after:
        out.print(f"The ledger has schema {after} already; nothing was done.")
    elif before is None:
        out.print(f"The ledger was empty; it has the tables of schema {after} now.")
    else:
        out.print(f"The ledger had schema {before}; it has {after} now.")
