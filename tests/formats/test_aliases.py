"""Records that say a column by a name that it had before, beside those that say its own."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidegate.formats import DebeziumDecoder, FrameDecoder, JsonDecoder, RecordLayout, Records

SCHEMA = pa.schema(
    [
        *(pa.field("id", pa.string()), pa.field("quantity", pa.int32())),
        *(pa.field("price", pa.decimal128(10, 2)), pa.field("place", pa.struct([("city", pa.string())]))),
    ]
)
ALIASES = {"id": ("key",), "quantity": ("qty", "number"), "price": ("cost",), "place": ("where",)}


def decoded(*values: Any) -> tuple[list[Any], dict[int, str]]:
    result = JsonDecoder(SCHEMA, ALIASES).decode([json.dumps(value).encode() for value in values])
    return result.columns.to_pylist(), dict(result.reasons)


def only(name: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(SCHEMA.names) | {name: value}


def test_records_of_both_names_are_in_one_batch() -> None:
    rows, reasons = decoded({"quantity": 1}, {"qty": 2}, {"number": 3}, {})
    assert [row["quantity"] for row in rows] == [1, 2, 3, None]
    assert reasons == {}


@pytest.mark.parametrize(
    ("value", "quantity"),
    [
        ({"quantity": 1, "qty": 2}, 1),
        ({"qty": 2, "quantity": 1}, 1),
        ({"quantity": None, "qty": 2}, None),
        ({"number": 3, "qty": 2}, 2),
        ({"number": 3, "qty": None}, None),
    ],
)
def test_newest_of_several_names_counts_even_if_null(value: Any, quantity: Any) -> None:
    assert decoded(value) == ([only("quantity", quantity)], {})


def test_older_name_reads_values_of_every_kind() -> None:
    assert decoded({"cost": "1.5"})[0] == [only("price", Decimal("1.50"))]
    assert decoded({"where": {"city": "x"}})[0] == [only("place", {"city": "x"})]
    assert decoded({"where": None})[0] == [only("place", None)]


def test_unfit_value_is_quarantined_under_any_name() -> None:
    rows, reasons = decoded({"qty": "x"}, {"quantity": 1, "qty": "x"}, {"cost": 1.234})
    assert rows == [None, None, None]
    assert reasons[0] == "malformed: Expected `int | null`, got `str` - at `$.qty`"
    assert set(reasons) == {0, 1, 2}


def test_rows_of_debezium_have_older_names_too() -> None:
    decoder = DebeziumDecoder(SCHEMA, ["id"], ALIASES)
    changes = [
        {"op": "u", "before": None, "after": {"key": "a", "qty": 1}},
        {"op": "d", "before": {"key": "b", "qty": 2}, "after": None},
    ]
    result = decoder.decode([json.dumps(change).encode() for change in changes])
    first, second = result.columns.to_pylist()
    assert (first["id"], first["quantity"], second["id"]) == ("a", 1, "b")
    assert result.deletions == (1,)


@pytest.mark.parametrize("key", [b'{"key":"a","quantity":1}', b'{"id":"a","qty":1}'])
def test_a_tombstones_own_key_may_have_them(key: bytes) -> None:
    layout = RecordLayout("json", SCHEMA, key=("id", "quantity"), aliases=ALIASES)
    value = json.dumps({"key": "a", "qty": 1}).encode()
    records = Records("t", 0, [0, 1], [0, 0], [None, key], [value, None], [None, None])
    (rows,) = FrameDecoder(layout, None, keeps_input=False).decode(records)
    assert rows.column("__key").to_pylist() == ['{"id":"a","quantity":1}'] * 2
    assert rows.column("__tombstone").to_pylist() == [False, True]
