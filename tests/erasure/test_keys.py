"""Which keys contain the erased ones, by the columns that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.model.files import made
from tidegate.erasure import ErasedKeys
from tidegate.errors import SettingsInvalid

CUSTOMER = ErasedKeys(("7", "x y"), ("customer",))
PAIR = ErasedKeys(('{"store":"s1","id":7}',), ("store", "id"))


def masked(keys: ErasedKeys, columns: Sequence[str] | None, *texts: str | None) -> list[bool]:
    column = pa.chunked_array([pa.array(texts, pa.string())])
    mask: list[bool] = keys.mask(columns, column).to_pylist()
    return mask


def test_the_same_columns_compare_whole_texts() -> None:
    assert masked(CUSTOMER, ["customer"], "7", "17", "x y", None) == [True, False, True, False]
    assert masked(PAIR, ["store", "id"], '{"store":"s1","id":7}', '{"store":"s1","id":70}') == [True, False]


def test_more_columns_contain_an_erased_key() -> None:
    keys = ('{"customer":7,"day":"2026-01-31"}', '{"customer":70,"day":"7"}', '{"customer":"x y","day":"1"}')
    assert masked(CUSTOMER, ["customer", "day"], *keys) == [True, False, True]
    assert masked(PAIR, ["id", "hour", "store"], '{"id":7,"hour":1,"store":"s1"}') == [True]


def test_deduplicated_columns_are_always_an_object() -> None:
    keys = pa.chunked_array([['{"customer":7}', '{"customer":70}', "7"]])
    assert CUSTOMER.mask(["customer"], keys, are_objects=True).to_pylist() == [True, False, False]


def test_numbers_are_compared_as_they_are_written() -> None:
    keys = ErasedKeys(("0.10",), ("price",))
    assert masked(keys, ["price", "n"], '{"price":0.10,"n":1}', '{"price":0.1,"n":1}') == [True, False]


def test_other_columns_contain_no_erased_key() -> None:
    assert not CUSTOMER.may_match(["day"])
    assert masked(CUSTOMER, ["day"], "7") == [False]
    assert not PAIR.may_match(["store"])


def test_own_keys_match_own_keys_only() -> None:
    own = ErasedKeys(("7",), ())
    assert (own.may_match(["key"]), own.may_match(["customer"]), own.may_match(None)) == (True, False, True)
    assert masked(own, ["key"], "7", "8") == [True, False]


@pytest.mark.parametrize(
    ("key", "value", "is_of_key"),
    [
        (b"7", b"\xff", True),
        (None, b'{"customer": 7}', True),
        (None, b'{"customer": "x y", "n": 1}', True),
        (b"8", b'{"customer": 70}', False),
        (b"8", b"{oops", None),
        (None, None, None),
        (b'{"customer":7,"day":1}', None, True),
    ],
)
def test_quarantined_record_is_matched_by_key_or_value(
    key: bytes | None, value: bytes | None, is_of_key: bool | None
) -> None:
    assert CUSTOMER.is_in_record(key, value) is is_of_key


def test_text_of_no_key_is_refused() -> None:
    pipeline = made(source={"key": ["a", "b"], "columns": "a string, b bigint"})
    with pytest.raises(SettingsInvalid, match="is not a key of the columns a, b"):
        ErasedKeys.of_stage(pipeline, None, ["7"])
    with pytest.raises(SettingsInvalid, match="No key is named"):
        ErasedKeys.of_stage(pipeline, None, [])
    with pytest.raises(SettingsInvalid, match="has no stage none"):
        ErasedKeys.of_stage(pipeline, "none", ["7"])
