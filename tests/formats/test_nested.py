"""Fields of structs in the key, the time, the sequence, and `explode`, where records are decoded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.formats.test_frame import body, decoded, layout, single_row
from tidegate.formats.records import SequenceParts, array_at, with_array_at

SITE = pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
LINE = pa.struct([("sku", pa.string()), ("n", pa.int32())])
COLUMNS = pa.schema(
    [
        pa.field("store", pa.string()),
        pa.field("device", pa.struct([("id", pa.string()), ("site", SITE), ("lines", pa.list_(LINE))])),
    ]
)


def nested(**fields: Any) -> Any:
    return layout(columns=COLUMNS, **fields)


def test_field_is_a_column_of_the_key() -> None:
    keyed = nested(key=("store", "id"), nested={"id": "device.site.id"})
    row = single_row(keyed, value=body(store="s", device={"id": "d", "site": {"id": 7}}))
    assert (row["__key"], row["id"], row["device"]["id"]) == ('{"store":"s","id":7}', 7, "d")


@pytest.mark.parametrize("device", [None, {"id": "d"}, {"site": None}, {"site": {"id": None}}])
def test_missing_field_of_a_key_is_quarantined(device: dict[str, Any] | None) -> None:
    row = single_row(nested(key=("id",), nested={"id": "device.site.id"}), value=body(device=device))
    assert row["__reason"] == "null_key_column"


def test_tombstone_has_its_key_without_the_path() -> None:
    keyed = nested(key=("id", "store"), nested={"id": "device.id"})
    row = single_row(keyed, value=None, key=b'{"store":"s","id":"d"}')
    assert (row["__key"], row["id"]) == ('{"id":"d","store":"s"}', None)
    alone = single_row(nested(key=("id",), nested={"id": "device.site.id"}), value=None, key=b"7")
    assert alone["__key"] == "7"


def test_field_is_the_time_of_records() -> None:
    timed = nested(timestamp="device.site.at")
    at = "1970-01-01T00:00:01.5Z"
    rows = decoded(
        timed, {"value": body(device={"site": {"at": at}})}, {"value": body(device={})}, {"value": None}
    )
    assert [row["__timestamp"] for row in rows] == [1500, None, 1000]
    assert [row["__reason"] for row in rows] == [None, "no_timestamp", None]


def test_field_orders_changes_of_a_key() -> None:
    ordered = nested(sequence=SequenceParts(columns=("device.site.id", "store")))
    row = single_row(ordered, value=body(store="s", device={"site": {"id": 7}}))
    assert row["__sequence"].startswith(f"{7:019}")


def test_elements_take_the_place_of_their_array() -> None:
    exploded = nested(explode="device.lines", key=("sku",), nested={"sku": "device.lines.sku"})
    device = {"id": "d", "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]}
    rows = decoded(
        exploded,
        *({"value": body(store="s", device=value)} for value in (device, {"id": "e", "lines": []}, None)),
    )
    assert [(row["__key"], row["__part"], row["__empty"]) for row in rows] == [
        *(("a", 0, False), ("b", 1, False), (None, 0, True), (None, 0, True))
    ]
    assert [row["device"] for row in rows] == [
        {"id": "d", "site": None, "lines": {"sku": "a", "n": 1}},
        {"id": "d", "site": None, "lines": {"sku": "b", "n": 2}},
        {"id": "e", "site": None, "lines": None},
        None,
    ]


def test_array_in_a_sliced_struct_is_replaced() -> None:
    structs = pa.array([{"a": 1}, None, {"a": 3}], pa.struct([("a", pa.int64())])).slice(1)
    replaced = with_array_at({"s": structs}, "s.a", pa.array(["x", "y"]))
    assert replaced["s"].to_pylist() == [None, {"a": "y"}]
    assert array_at(replaced, "s.a").to_pylist() == [None, "y"]
