"""Removing what nobody reads any more: whole names from a table, then their files after a safe age.

Others append to the same tables meanwhile; what is removed are other partitions than theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from tidegate.errors import LakeUnavailable
from tidegate.failpoints import failpoint
from tidegate.lake.reader import lake_errors, open_table

_TRIES = 5
_NAMES_AT_ONCE = 500


def names_in(path: str) -> list[str]:
    """The attempts and snapshots that have rows in a table, in order."""
    with lake_errors(path):
        table = open_table(path)
        if table is None:
            return []
        files = pa.table(table.get_add_actions(flatten=True))
        return sorted(pc.unique(files["partition.attempt"]).to_pylist())


def remove_names(path: str, names: Sequence[str]) -> None:
    """Take the rows of these names out of a table. Their files stay until `vacuum`.

    Raises LakeUnavailable, also when others change the table so fast that no try gets through.
    """
    for start in range(0, len(names), _NAMES_AT_ONCE):
        quoted = ", ".join(
            "'" + name.replace("'", "''") + "'" for name in names[start : start + _NAMES_AT_ONCE]
        )
        _delete(path, f"attempt IN ({quoted})")


def _delete(path: str, predicate: str) -> None:
    for _ in range(_TRIES):
        try:
            with lake_errors(path), failpoint("maintenance.delete"):
                DeltaTable(path).delete(predicate)
            return
        except LakeUnavailable as error:
            if not isinstance(error.__cause__, CommitFailedError):
                raise
            conflict = error
    raise conflict


def vacuum(path: str, safe_age: timedelta, dry_run: bool = False) -> int:
    """Delete the files that the table has not named for `safe_age`, and older ones that it never named.

    Returns how many. Raises LakeUnavailable.
    """
    with lake_errors(path):
        table = open_table(path)
        if table is None:
            return 0
        hours = int(safe_age.total_seconds() // 3600)
        found = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        if found and not dry_run:
            with failpoint("maintenance.vacuum"):
                # by the table as it is now: to a look from before a long pause, newer files would be unknown
                newest = DeltaTable(path)
                newest.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return len(found)
