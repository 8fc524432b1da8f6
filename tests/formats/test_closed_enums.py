"""Closed enums of proto2: a number without a name is as if it were not there, wherever it stands."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidegate.formats.protobuf import ProtobufDecoder
from tidegate.formats.protobuf.schema import ProtoEnum, ProtoField, ProtoMessage, ProtoSchema

FIELDS = (
    ProtoField("states", 1, "message", "M.StatesEntry", True),
    ProtoField("state", 2, "enum", "E", False, "explicit"),
    ProtoField("a", 3, "enum", "E", False, "explicit", "o"),
    ProtoField("b", 4, "string", "", False, "explicit", "o"),
    ProtoField("must", 5, "enum", "E", False, "required"),
)
ENTRY = ProtoMessage((ProtoField("key", 1, "string"), ProtoField("value", 2, "enum", "E")), (), True)
SCHEMA = ProtoSchema(
    ("M",),
    {"M": ProtoMessage(FIELDS, ("M.StatesEntry",)), "M.StatesEntry": ENTRY},
    {"E": ProtoEnum(((1, "OPEN"), (2, "CLOSED")), True)},
)
TEXT = pa.string()
COLUMNS = pa.schema([("states", pa.map_(TEXT, TEXT)), ("state", TEXT), ("b", TEXT)])
MUST = b"\x28\x01"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"\x0a\x05\x0a\x01k\x10\x07" + b"\x0a\x05\x0a\x01l\x10\x02", {"states": [("l", "CLOSED")]}),
        (b"\x0a\x03\x0a\x01k", {"states": [("k", "OPEN")]}),
        (b"\x10\x01\x10\x07", {"state": "OPEN"}),
        (b"\x22\x01x\x18\x07", {"b": "x"}),
        (b"\x22\x01x\x18\x02", {}),
    ],
    ids=["map", "default", "last", "unnamed in a oneof", "named in a oneof"],
)
def test_numbers_without_a_name_do_not_count(written: bytes, expected: dict[str, Any]) -> None:
    decoded = ProtobufDecoder(COLUMNS, SCHEMA, "M").decode([MUST + written, MUST])
    nothing = {"states": [], "state": None, "b": None}
    assert decoded.columns.to_pylist() == [{**nothing, **expected}, nothing]


def test_a_required_enum_without_a_name_is_missing() -> None:
    decoded = ProtobufDecoder(COLUMNS, SCHEMA, "M").decode([b"\x28\x07", MUST])
    assert decoded.reasons == {0: "malformed: A required field is missing - at `$.must`"}
