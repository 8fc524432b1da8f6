"""Rows on their way into the kernel and out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate import kernel
from tidegate.formats import INPUT, unpack_headers
from tidegate.storage.quarantine_files import QUARANTINE

_CONSTANTS = {"kind": kernel.RECORD, "updated_seq": 0, "part": 0, "passes": True}
"""The values of records in columns that did not travel through the shuffle."""
BY_KEY_AND_RANK = ("key", "instant", "turn", "part", "topic", "partition", "ordinal")
"""The order of a key's emissions that tasks of several topic-partitions have made."""


def complete(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows from the shuffle with all columns of the kernel's input."""
    present = rows.schema.names

    def column(field: pa.Field) -> pa.Array:
        if field.name in present:
            return rows.column(field.name)
        if field.name == "turn":
            # A record of the source has its turn by its offset.
            return rows.column("offset")
        if field.name in _CONSTANTS:
            return pa.repeat(pa.scalar(_CONSTANTS[field.name], field.type), rows.num_rows)
        return pa.nulls(rows.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


class Bypass:
    """Records that nothing can repeat bypass the pass that drops repeated ones.

    They have `bypasses`, and go on as emissions in `schema` beside the output of that pass.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._taken: list[pa.RecordBatch] = []

    def without(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the other rows; all rows, if there is no column `bypasses`."""
        for rows in batches:
            if "bypasses" in rows.schema.names:
                bypasses = rows.column("bypasses")
                self._taken.append(rows.filter(bypasses))
                rows = rows.filter(pc.invert(bypasses))
            yield rows

    def taken(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were taken since the last call."""
        taken, self._taken = self._taken, []
        for rows in taken:
            if rows.num_rows:
                yield forwarded(rows, self._schema)


def forwarded(emissions: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return emissions as rows of the next pass."""
    present = emissions.schema.names
    arrays = [
        emissions.column(field.name) if field.name in present else pa.nulls(emissions.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def quarantine_rows(rows: pa.RecordBatch, inputs: pa.StructArray, seq: int) -> pa.RecordBatch:
    """Return unusable input, whole, in the form of quarantine. `inputs` is its `input`."""
    columns = {name: rows.column(name) for name in ("topic", "partition", "offset", "timestamp")}
    columns |= {name: pc.struct_field(inputs, name) for name in INPUT.names}
    columns["headers"] = unpack_headers(columns["headers"])
    columns["seq"] = pa.repeat(pa.scalar(seq, pa.int64()), rows.num_rows)
    return pa.RecordBatch.from_pydict(columns, schema=QUARANTINE)


def numbered_by_key(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows sorted by `BY_KEY_AND_RANK`, with `ordinal` 0, 1, 2 … in each key.

    Example: rows of the keys a, a, b get the ordinals 0, 1, 0.
    """
    last, before = None, 0
    for rows in batches:
        if not rows.num_rows:
            continue
        keys = rows.column("key")
        is_first = np.ones(rows.num_rows, bool)
        is_first[1:] = pc.not_equal(keys.slice(1), keys.slice(0, rows.num_rows - 1)).to_numpy(False)
        # Batches cut the rows of a key anywhere: the numbers go on from the batch before.
        goes_on = keys[0].as_py() == last
        number = np.arange(rows.num_rows)
        first = np.maximum.accumulate(np.where(is_first, number, 0))
        ordinals = number - first
        if goes_on:
            ordinals[first == 0] += before
        last, before = keys[-1].as_py(), int(ordinals[-1]) + 1
        place = rows.schema.get_field_index("ordinal")
        yield rows.set_column(place, rows.schema.field(place), pa.array(ordinals, pa.int64()))
