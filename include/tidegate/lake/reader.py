"""Reading the tables without a JVM. Callers name the committed attempts; no other row is ever seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidegate.errors import LakeUnavailable


@contextmanager
def lake_errors(path: str) -> Iterator[None]:
    """Turn failures of the store into LakeUnavailable."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise LakeUnavailable(
            f"The table {path} cannot be used: {str(error).splitlines()[0][:300]}",
            "Check rights, space and TIDEGATE_LAKE; then run again, nothing is lost.",
        ) from error


def read_attempts(
    path: str, attempts: Sequence[str], columns: Sequence[str] | None = None
) -> pa.Table | None:
    """The rows of these attempts, in no order, or None when the table has none of them."""
    with lake_errors(path):
        table = _open(path)
        if table is None or not attempts:
            return None
        dataset = table.to_pyarrow_dataset()
        wanted = None if columns is None else list(columns)
        return dataset.to_table(columns=wanted, filter=pc.field("attempt").isin(list(attempts)))


@dataclass(frozen=True)
class AttemptFiles:
    """The Parquet files of some attempts, ordered by name, and the table's schema as Spark's JSON."""

    paths: tuple[str, ...]
    schema_json: str


def attempt_files(path: str, attempts: Sequence[str]) -> AttemptFiles | None:
    """The files of these attempts, or None if there are none. Each key is in one file of an attempt."""
    with lake_errors(path):
        table = _open(path)
        if table is None or not attempts:
            return None
        actions = pa.table(table.get_add_actions(flatten=True))
        mine = actions.filter(pc.is_in(actions["partition.attempt"], pa.array(attempts)))
        paths = tuple(f"{path}/{name}" for name in sorted(mine["path"].to_pylist()))
        return AttemptFiles(paths, table.schema().to_json()) if paths else None


def newest_per_key(state: pa.Table) -> pa.Table:
    """Of each key's rows the one with the highest `updated_seq`, without the deleted keys, by key."""
    ordered = state.sort_by([("key", "ascending"), ("updated_seq", "descending")])
    keys = ordered["key"].combine_chunks()
    if len(keys) > 1:
        first = pa.concat_arrays(
            [pa.array([True]), pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))]
        )
        ordered = ordered.filter(first)
    return ordered.filter(pc.is_valid(ordered["value"]))


def _open(path: str) -> DeltaTable | None:
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        # A local folder that cannot be read also "is not a table"; say so instead of finding nothing.
        if "://" not in path and Path(path).exists():
            list(Path(path).iterdir())
        return None
