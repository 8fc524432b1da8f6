"""A state of as many keys as one likes, written without the batch that would have come to it.

Its rows are like one that a real batch has written, for other products.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.events import STORES
from tidegate.kernel.keys import key_hashes
from tidegate.storage.compaction import ROWS_PER_FILE
from tidegate.storage.datafile import ROW_GROUP_ROWS, RowWriter
from tidegate.storage.manifest import DataFile
from tidegate.storage.store import Store

_CHUNK = 1_000_000

Products = npt.NDArray[np.int64]


def write_state(
    store: Store, folder: str, stage: str, row: pa.Table, products: int, partitions: int
) -> list[DataFile]:
    """State rows of all products in files as compaction makes them, sorted by hash; `row` is the one to copy.

    Takes 16 bytes of memory per product. Raises LakeUnavailable.
    """
    order = _by_hash(products)
    files = []
    for number, begin in enumerate(range(0, products, ROWS_PER_FILE)):
        with RowWriter(store, f"{folder}/{number:05d}.parquet", "state", stage) as writer:
            for group in _groups(order[begin : begin + ROWS_PER_FILE]):
                writer.write(rows_of(row, group, partitions))
        assert writer.file is not None, "a file has rows"
        files.append(writer.file)
    return files


def keys_of(products: Products) -> pa.StringArray:
    """Return the key that `events.key` makes of each product."""
    numbers = pa.array(products)
    store = pa.array(products % STORES).cast(pa.string())
    number = pc.add(pc.divide(numbers, STORES), 1).cast(pa.string())
    return pc.binary_join_element_wise('{"storeId":"store-', store, '","id":', number, "}", "")


def _by_hash(products: int) -> Products:
    """Return all products, in the order of their keys' hashes."""
    hashes = np.empty(products, np.int64)
    for begin in range(0, products, _CHUNK):
        chunk = np.arange(begin, min(begin + _CHUNK, products))
        hashes[chunk] = key_hashes(keys_of(chunk)).to_numpy()
    return np.argsort(hashes)


def _groups(products: Products) -> Iterator[Products]:
    for begin in range(0, len(products), ROW_GROUP_ROWS):
        yield products[begin : begin + ROW_GROUP_ROWS]


def rows_of(row: pa.Table, products: Products, partitions: int) -> pa.RecordBatch:
    """Return copies of a row for products, in their order."""
    keys = keys_of(products)
    own = {
        "key": keys,
        "hash": key_hashes(keys),
        "partition": pa.array(products % partitions).cast(row.schema.field("partition").type),
        # before all records of the partition: none is taken for one that was read already
        "offset": pa.repeat(pa.scalar(-1, row.schema.field("offset").type), len(products)),
    }
    copied = {name: row[name][0] for name in row.column_names if name not in own}
    arrays = [
        own[field.name] if field.name in own else pa.repeat(copied[field.name], len(products))
        for field in row.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=row.schema)
