"""The command `migrate`."""

from __future__ import annotations

import json

from tidegate.cli.show import out
from tidegate.ledger import migrate_database
from tidegate.settings import Settings


def migrate(as_json: bool) -> None:
    """Bring the ledger to the schema of this version, and print the schema that it had before."""
    before, after = migrate_database(Settings.from_environment().ledger)
    if as_json:
        print(json.dumps({"before": before, "after": after}))
    elif before == after:
        out.print(f"The ledger has schema {after} already; nothing was done.")
    elif before is None:
        out.print(f"The ledger was empty; it has the tables of schema {after} now.")
    else:
        out.print(f"The ledger had schema {before}; it has {after} now.")
