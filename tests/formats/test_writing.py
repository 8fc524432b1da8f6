"""Emissions as Avro and Protobuf, against the libraries that others read them with."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import grpc_tools
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.formats.avro import AvroDecoder
from tidegate.formats.avro.schema import avro_columns, parse_avro
from tidegate.formats.avro.write import avro_schema, avro_writer
from tidegate.formats.protobuf.derived import DERIVED, derived_schema, numbers_of, protobuf_schema
from tidegate.formats.protobuf.write import protobuf_writer
from tidegate.formats.schemas import Unwritable

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
INNER = pa.struct([("n", pa.int32()), ("t", pa.string())])
COLUMNS = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(20, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("inner", INNER),
        ("texts", pa.list_(pa.string())),
        ("numbers", pa.list_(pa.int64())),
        ("inners", pa.list_(INNER)),
        ("by_name", pa.map_(pa.string(), pa.float64())),
        ("inner_by_name", pa.map_(pa.string(), INNER)),
    ]
)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INNERS = st.fixed_dictionaries({"n": st.none() | integers(32), "t": st.none() | TEXTS})
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": integers(8),
    "small": integers(32),
    "big": integers(64),
    "single": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "text": TEXTS,
    "raw": st.binary(max_size=5),
    "price": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    "day": st.dates(date(1, 1, 2)),
    "at": INSTANTS.map(lambda at: at.replace(tzinfo=timezone.utc)),
    "local": INSTANTS,
    "inner": INNERS,
    "texts": st.lists(TEXTS, max_size=3),
    "numbers": st.lists(integers(64), max_size=3),
    "inners": st.lists(INNERS, max_size=2),
    "by_name": st.dictionaries(TEXTS, st.floats(allow_nan=False), max_size=2),
    "inner_by_name": st.dictionaries(TEXTS, INNERS, max_size=2),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
MAPS = ("by_name", "inner_by_name")


def struct_of(rows: list[dict[str, Any] | None]) -> pa.StructArray:
    return pa.array(
        [row and row | {name: row[name] and list(row[name].items()) for name in MAPS} for row in rows],
        pa.struct(list(COLUMNS)),
    )


def avro_bytes(values: pa.StructArray, columns: pa.Schema = COLUMNS) -> pa.BinaryArray:
    return avro_writer(parse_avro(avro_schema("level", "tidegate.levels", columns)), columns)(values)


def protobuf_bytes(values: pa.StructArray, text: str, columns: pa.Schema = COLUMNS) -> pa.BinaryArray:
    return protobuf_writer(derived_schema(columns, numbers_of(text)), DERIVED, columns)(values)


@examples(50)
@given(st.lists(st.none() | ROWS, min_size=1, max_size=4))
def test_avro_is_what_fastavro_reads_and_writes(rows: list[dict[str, Any] | None]) -> None:
    schema = fastavro.parse_schema(json.loads(avro_schema("level", "tidegate.levels", COLUMNS)))
    for row, written in zip(rows, avro_bytes(struct_of(rows)).to_pylist(), strict=True):
        if row is None:
            assert written is None
            continue
        assert fastavro.schemaless_reader(io.BytesIO(written), schema, None) == row
        theirs = io.BytesIO()
        fastavro.schemaless_writer(theirs, schema, row)
        assert written == theirs.getvalue()


@examples(50)
@given(st.lists(st.none() | ROWS, min_size=1, max_size=4))
def test_source_reads_avro_written_by_a_sink(rows: list[dict[str, Any] | None]) -> None:
    schema, values = parse_avro(avro_schema("level", "tidegate.levels", COLUMNS)), struct_of(rows)
    decoder = AvroDecoder(avro_columns(schema), schema, None)
    decoded = decoder.decode(avro_bytes(values).to_pylist())
    assert not decoded.reasons
    assert decoded.columns.cast(values.type).to_pylist() == values.to_pylist()


@pytest.mark.parametrize("items", [pa.int64(), pa.list_(pa.string()), pa.map_(pa.string(), pa.int64())])
def test_avro_lists_hold_nulls_and_lists(items: pa.DataType) -> None:
    columns = pa.schema([("list", pa.list_(items)), ("map", pa.map_(pa.string(), items))])
    schema = fastavro.parse_schema(json.loads(avro_schema("level", "tidegate", columns)))
    row = {"list": [None], "map": [("a", None)]}
    written = avro_bytes(pa.array([row], pa.struct(list(columns))), columns)[0].as_py()
    assert fastavro.schemaless_reader(io.BytesIO(written), schema, None) == {
        "list": [None],
        "map": {"a": None},
    }


@cache
def message_class(text: str) -> Any:
    """Compile a message by Protobuf's own compiler."""
    folder = Path(grpc_tools.__file__).parent
    pool = descriptor_pool.DescriptorPool()
    with tempfile.TemporaryDirectory() as place:
        Path(place, "a.proto").write_text(text)
        options = [f"-I{place}", f"-I{folder / '_proto'}", "--include_imports"]
        command = [*options, f"--descriptor_set_out={place}/out", "a.proto"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *command], check=True, timeout=600)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(place, "out").read_bytes()).file
    for file in files:
        pool.Add(file)
    top = files[-1]
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{top.package}.{top.message_type[0].name}")
    )


def expected_message(text: str, row: dict[str, Any]) -> Any:
    message = message_class(text)()
    for name, value in row.items():
        if value is None:
            continue
        if name == "at":
            since = value - EPOCH
            message.at.seconds = since // timedelta(seconds=1)
            message.at.nanos = (since % timedelta(seconds=1)) // timedelta(microseconds=1) * 1000
            message.at.SetInParent()
        elif name == "inner":
            _fill(message.inner, value)
            message.inner.SetInParent()
        elif name == "inners":
            for item in value:
                _fill(message.inners.add(), item)
        elif name == "inner_by_name":
            for key, item in value.items():
                _fill(message.inner_by_name[key], item)
        elif isinstance(value, (list, dict)):
            getattr(message, name).extend(value) if isinstance(value, list) else message.by_name.update(value)
        else:
            setattr(message, name, _as_text(name, value))
    return message


def _fill(message: Any, value: dict[str, Any]) -> None:
    for name, part in value.items():
        if part is not None:
            setattr(message, name, part)


def _as_text(name: str, value: Any) -> Any:
    if name == "local":
        return value.isoformat(timespec="microseconds")
    return str(value) if name in ("price", "day") else value


@examples(50)
@given(st.lists(st.none() | ROWS, min_size=1, max_size=4))
def test_protobuf_agrees_with_its_library_both_ways(rows: list[dict[str, Any] | None]) -> None:
    text = protobuf_schema("level", "tidegate.levels", COLUMNS, {})
    written_all = protobuf_bytes(struct_of(rows), text).to_pylist()
    for row, written in zip(rows, written_all, strict=True):
        if row is None:
            assert written is None
            continue
        expected = expected_message(text, row)
        assert message_class(text).FromString(written) == expected
        if all(len(row[name] or ()) < 2 for name in MAPS):  # whose order is nobody's
            assert written == expected.SerializeToString()


def test_protobuf_field_numbers_are_kept_and_never_reused() -> None:
    first = protobuf_schema(
        "level", "t", pa.schema([("a", pa.string()), ("b", INNER), ("c", pa.int32())]), {}
    )
    changed = pa.schema(
        [("d", pa.string()), ("c", pa.int32()), ("b", pa.struct([("x", pa.int32()), *INNER]))]
    )
    second = protobuf_schema("level", "t", changed, numbers_of(first))
    numbers = numbers_of(second)
    assert {name: numbers[name,] for name in "bcd"} == {"b": 2, "c": 3, "d": 4}
    assert [numbers["b_type", name] for name in "ntx"] == [1, 2, 3]
    third = protobuf_schema("level", "t", pa.schema([("e", pa.string())]), numbers)
    assert "reserved 1, 2, 3, 4;" in third
    assert numbers_of(third)["e",] == 5
    assert message_class(third).DESCRIPTOR.fields_by_name["e"].number == 5


def test_numbers_of_a_written_file_are_read() -> None:
    text = """
    syntax = "proto3"; // level = 1
    import "a.proto";
    option java_package = "x";
    /* message Other { int32 no = 9; } */
    message Level {
      reserved 4, 7; reserved "old";
      enum Size { SMALL = 0; }
      message Box { repeated string sides = 3; }
      Box box = 1 [deprecated = true];
      map<string, int32> by_name = 2;
      oneof what { string reserved = 5; int64 m = 6; }
    }
    message Later { int32 a = 1; }
    """
    numbers = numbers_of(text)
    assert {path: number for path, number in numbers.items() if path[-1].isidentifier()} == {
        ("Box", "sides"): 3,
        ("box",): 1,
        ("by_name",): 2,
        ("reserved",): 5,
        ("m",): 6,
    }
    assert sorted(number for path, number in numbers.items() if not path[-1].isidentifier()) == [4, 7]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("größe", pa.int32())], "`größe` is not a valid name"),
        ([("a", pa.list_(pa.list_(pa.int32())))], "`a` has lists or maps in lists"),
        ([("a", INNER), ("a_type", pa.int32())], "`a_type` is already the name of the message"),
    ],
)
def test_what_protobuf_does_not_have_is_reported(columns: list[Any], says: str) -> None:
    with pytest.raises(Unwritable, match=says):
        protobuf_schema("level", "t", pa.schema(columns), {})


def test_a_null_in_a_list_cannot_be_protobuf() -> None:
    columns = pa.schema([("a", pa.list_(pa.string()))])
    text = protobuf_schema("level", "t", columns, {})
    with pytest.raises(Unwritable, match=r"`\$\.a\[\.\.\.\]` is null, and the schema has no null there"):
        protobuf_bytes(pa.array([{"a": [None]}], pa.struct(list(columns))), text, columns)


def test_invalid_avro_name_is_reported() -> None:
    with pytest.raises(Unwritable, match="`a-b` is not a valid name in Avro"):
        avro_schema("level", "t", pa.schema([("a-b", pa.int32())]))
