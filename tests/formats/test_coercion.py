"""`coerce: true`: values of JSON that ksqlDB converts to the types of their columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidegate.formats.json import JsonDecoder
from tidegate.formats.json.coercion import CoercingDecoder

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("m", pa.map_(pa.string(), pa.string())),
        ("a", pa.list_(pa.int32())),
        ("o", pa.struct([("i", pa.int32())])),
        ("x", pa.decimal128(5, 2)),
        ("b", pa.bool_()),
    ]
)
DECODER = CoercingDecoder(JsonDecoder(SCHEMA, {"i": ["id"]}), {"i": ["id"]})


def decoded(*values: bytes | None) -> list[dict[str, Any] | None]:
    """The columns of each value that have one; None for an unusable value, and for a tombstone."""
    rows = DECODER.decode(values).columns.to_pylist()
    return [None if row is None else {k: v for k, v in row.items() if v is not None} for row in rows]


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b'{"i": "-7"}', {"i": -7}),
        (b'{"id": "7"}', {"i": 7}),
        (b'{"i": 2.7, "l": -2.7}', {"i": 2, "l": -2}),
        (b'{"i": 3000000000}', {"i": -1294967296}),  # the lowest 32 bits, as in Java
        (b'{"l": 1e30}', {"l": 5076944270305263616}),
        (b'{"l": 1e999999999}', {"l": 0}),
        (b'{"d": " 1.5d "}', {"d": 1.5}),
        (b'{"d": "-Infinity", "i": "1"}', {"d": float("-inf"), "i": 1}),
        (b'{"d": 1e400}', {"d": float("inf")}),
        (b'{"s": 2.50, "i": 1}', {"s": "2.50", "i": 1}),
        (b'{"s": 1e5}', {"s": "1E+5"}),
        (b'{"s": -0.0}', {"s": "0.0"}),
        (b'{"s": false}', {"s": "false"}),
        (b'{"s": {"a": [1, 2.50, null], "b": "\\u00fc"}}', {"s": '{"a":[1,2.50,null],"b":"\u00fc"}'}),
        (b'{"s": [1, "a", null, true, {"q": 1}]}', {"s": '[1, a, null, true, {"q":1}]'}),
        (b'{"m": {"x": 1, "y": false, "z": null}}', {"m": [("x", "1"), ("y", "false"), ("z", None)]}),
        (b'{"a": [1, 2.0, "3"]}', {"a": [1, 2, 3]}),
        (b'{"o": {"i": "1", "other": {}}}', {"o": {"i": 1}}),
        (b'{"i": "1", "unknown": [{}]}', {"i": 1}),
    ],
)
def test_value_of_another_type_is_converted(value: bytes, row: dict[str, Any]) -> None:
    assert decoded(value) == [row]


@pytest.mark.parametrize(
    "value",
    [
        *(b'{"i": "seven"}', b'{"i": "7 "}', b'{"i": "3000000000"}', b'{"i": true}', b'{"i": [1]}'),
        *(b'{"d": "1,5"}', b'{"d": false}', b'{"b": "true"}', b'{"b": 1}', b'{"a": 1}', b'{"m": [1]}'),
        *(b'{"o": "x"}', b'{"x": "1.255"}', b'{"s": NaN}', b"[1]", b"x", b'{"i": "1"', b'\xff{"i": "1"}'),
    ],
)
def test_value_without_a_conversion_keeps_its_reason(value: bytes) -> None:
    strict = JsonDecoder(SCHEMA, {"i": ["id"]}).decode([value])
    assert DECODER.decode([value]).reasons == strict.reasons
    assert 0 in strict.reasons


def test_converted_values_do_not_touch_their_neighbours() -> None:
    values = [b'{"i": 1}', b'{"i": "2"}', None, b"x", b'{"i": "3"}', b'{"i": 4}']
    assert decoded(*values) == [{"i": 1}, {"i": 2}, None, None, {"i": 3}, {"i": 4}]
    assert list(DECODER.decode(values).reasons) == [3]
