"""The hash of a key, by which rows are placed, sorted and looked up; it equals Spark's `xxhash64(key)`."""

from __future__ import annotations

from itertools import repeat

import numpy as np
import pyarrow as pa
import xxhash

SEED = 42
"""Spark's own seed; with another one, Spark and tidegate would place a key differently."""
LEAST_HASH, GREATEST_HASH = -(2**63), 2**63 - 1


def key_hashes(keys: pa.StringArray) -> pa.Int64Array:
    """Return the signed xxHash64 of each key's UTF-8; null for null."""
    values = keys.fill_null("").cast(pa.binary()).to_pylist()
    hashes = np.fromiter(map(xxhash.xxh64_intdigest, values, repeat(SEED)), np.uint64, len(values))
    # xxHash is unsigned, Spark's bigint is signed: the same 64 bits
    return pa.array(hashes.view(np.int64), mask=_nulls(keys))


def key_hash(key: str) -> int:
    """Return the hash of one key.

    Example: `key_hash("a")` is -8582455328737087284.
    """
    return int(key_hashes(pa.array([key], pa.string()))[0].as_py())


def _nulls(keys: pa.StringArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    return keys.is_null().to_numpy(zero_copy_only=False) if keys.null_count else None
