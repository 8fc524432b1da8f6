"""The rule that emissions have keys."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.quality.builtin.observation import SAMPLE, Observation
from tidegate.storage.schema import KEY, KEY_COLUMNS, parts_of

COLUMNS = (KEY, KEY_COLUMNS)


def keys_not_null(parts: Iterable[pa.Table]) -> Observation:
    """Check that each emission has a key, and no null in a column that the key is made of.

    Args:
        parts: Emissions with the columns `COLUMNS`, deletions included. The sample contains the keys' texts.
    """
    elements = unexpected = 0
    sample: list[str | None] = []
    for rows in parts:
        bad = rows.filter(_has_null(rows))
        elements, unexpected = elements + rows.num_rows, unexpected + bad.num_rows
        sample += bad[KEY].slice(0, SAMPLE - len(sample)).to_pylist()
    return Observation.of_rows("emissions have a null in their key", elements, unexpected, sample)


def _has_null(rows: pa.Table) -> pa.ChunkedArray:
    has_null = pc.is_null(rows[KEY])
    # a key that is made of columns has a text even if one of the columns is null
    for column in parts_of(rows[KEY_COLUMNS]).values():
        has_null = pc.or_(has_null, pc.is_null(column))
    return has_null
