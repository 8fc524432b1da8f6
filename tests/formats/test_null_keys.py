"""Records without a key, of a source that keeps them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.kernel.keys import key_hash, no_key, real_keys

VALUES = pa.schema([("s", pa.string()), ("n", pa.int32())])
NONE = no_key("t", 3)
OWN: dict[str, Any] = {"key_format": "json", "key_columns": pa.schema([("a", pa.int32()), ("b", pa.int32())])}


def rows(*records: tuple[bytes | None, Any], **layout: Any) -> list[dict[str, Any]]:
    """The rows of records with these keys and values."""
    fields = {"format": "json", "columns": VALUES, "keeps_null_keys": True} | layout
    values = [None if value is None else json.dumps(value).encode() for _, value in records]
    count = len(records)
    consumed = Records(
        "t", 3, range(count), [1000] * count, [key for key, _ in records], values, [None] * count
    )
    decoder = FrameDecoder(RecordLayout(**fields), 10_000, keeps_input=False)
    return [row for batch in decoder.decode(consumed) for row in batch.to_pylist()]


def keys(*records: tuple[bytes | None, Any], **layout: Any) -> list[str | None]:
    return [row["__key"] for row in rows(*records, **layout)]


def test_records_without_a_key_share_one() -> None:
    first, second = rows((None, {"n": 1}), (None, None))
    assert (first["__key"], first["__reason"], first["n"]) == (NONE, None, 1)
    assert (second["__key"], second["__tombstone"]) == (NONE, True)
    assert first["__hash"] == second["__hash"] == key_hash(NONE)


def test_null_column_is_no_key() -> None:
    assert keys((b"k", {"s": "a"}), (b"k", {"n": 1}), key=("s",)) == ["a", NONE]


def test_key_of_several_columns_keeps_its_nulls() -> None:
    assert keys((b"k", {"n": 1}), (b"k", {}), key=("s", "n")) == ['{"s":null,"n":1}', '{"s":null,"n":null}']


def test_missing_own_key_is_no_key_of_nulls() -> None:
    records: list[tuple[bytes | None, Any]] = [(None, {}), (b"{}", {}), (b'{"b": 1}', None)]
    assert keys(*records, **OWN, key=("a", "b")) == [NONE, '{"a":null,"b":null}', '{"a":null,"b":1}']
    assert keys(*records[:1], **OWN, key=("b", "a")) == ['{"b":null,"a":null}']


def test_null_value_has_the_nulls_of_its_key() -> None:
    assert keys((None, None), key=("s", "n")) == ['{"s":null,"n":null}']
    assert keys((None, None), (b"a", None), key=("s",)) == [NONE, "a"]


def test_source_without_keys_ignores_those_of_records() -> None:
    assert keys((b"k", {"n": 1}), (b"\xff", {"n": 1}), (b"k", None), keyless=True) == [NONE] * 3


def test_unusable_record_has_no_key() -> None:
    (row,) = rows((None, ["no object"]))
    assert (row["__key"], row["__reason"][:9]) == (None, "malformed")


def test_key_that_stands_for_none_is_quarantined() -> None:
    (row,) = rows((NONE.encode(), {"n": 1}))
    assert row["__reason"] == "reserved_key"


def test_keys_that_stand_for_none_become_null() -> None:
    assert real_keys(pa.array(["a", NONE, "null"])).to_pylist() == ["a", None, "null"]
