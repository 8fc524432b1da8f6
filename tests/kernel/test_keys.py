"""Hashes of keys: Spark's numbers, whatever stands beside a key. `spark/test_keys.py` asks Spark itself."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.keys import SEED, key_hash, key_hashes

FROM_SPARK = {
    "": -7444071767201028348,
    "a": -8582455328737087284,
    "Spark": -4294468057691064905,
    "é": 2065146811275570100,
    "äöü😀": -8700957967138352935,
    "x" * 100: 365730103971579591,
}


@pytest.mark.parametrize(("key", "number"), FROM_SPARK.items(), ids=[key[:5] for key in FROM_SPARK])
def test_hash_of_a_key_equals_spark_hash(key: str, number: int) -> None:
    assert key_hash(key) == number


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"))), st.integers(0, 5))
def test_keys_have_distinct_hashes_and_null_has_none(keys: list[str | None], start: int) -> None:
    hashes = key_hashes(pa.array(keys, pa.string()).slice(min(start, len(keys))))
    unsigned = [
        None if key is None else xxhash.xxh64_intdigest(key.encode(), SEED)
        for key in keys[min(start, len(keys)) :]
    ]
    assert [None if number is None else number % 2**64 for number in hashes.to_pylist()] == unsigned
