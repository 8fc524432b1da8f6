"""Canonical keys and their hashes, both as Spark writes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

from tidegate.kernel.json_text import json_texts, object_texts


def canonical_keys(
    names: Sequence[str], columns: Sequence[pa.Array], with_nulls: bool = False
) -> pa.StringArray:
    """Return the text of one column, as `cast(… as string)` gives it; for several, a JSON object in their
    order.

    Null if any of the columns is null; `with_nulls`: only if the single one is, and an object has its nulls.
    `model.keys` lists the types that can be keys; days and times must be in the years 1 to 9999.

    Example: columns `id` 7 and `shop` "a" give `{"id":7,"shop":"a"}`.
    """
    if len(columns) == 1:
        return _texts(columns[0])
    texts = [json_texts(column) for column in columns]
    return object_texts(names, [text.fill_null("null") for text in texts] if with_nulls else texts)


NO_KEY = "\N{SYMBOL FOR NULL} "
"""The beginning of the text that stands for no key in state: a stage that goes without keys has one for each
topic-partition.
"""


def no_key(topic: str, partition: int) -> str:
    """Return the text that stands for the key of a partition's records without one."""
    return f"{NO_KEY}{topic}/{partition}"


def are_none(keys: pa.StringArray) -> pa.BooleanArray:
    """Return which texts stand for no key, of a stage that goes without keys."""
    return pc.starts_with(keys, NO_KEY)


def real_keys(keys: pa.StringArray) -> pa.StringArray:
    """Return the keys of a stage that goes without keys, with nulls in place of what stands for none."""
    return pc.if_else(are_none(keys), pa.scalar(None, pa.string()), keys)


def _texts(values: pa.Array) -> pa.StringArray:
    if pt.is_decimal(values.type):
        return _decimals(values)
    if pt.is_timestamp(values.type):
        return _times(values)
    return values.cast(pa.string())


def _decimals(values: pa.Array) -> pa.StringArray:
    """Write all digits: `0.0000001`, where JSON has `1E-7`."""
    texts = values.cast(pa.string())
    short = pc.match_substring(texts, "E")
    digits = pa.array([format(value, "f") for value in values.filter(short).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, short, digits)


def _times(values: pa.TimestampArray) -> pa.StringArray:
    """Write `2026-01-31 10:30:00.5`, in UTC, with as many digits of the fraction as needed."""
    texts = values.cast(pa.timestamp("us")).cast(pa.string())
    # in this order: a whole second loses its zeros first, and then the point
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")


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
