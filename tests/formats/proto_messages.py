"""Random messages of Protobuf, by Protobuf's own library."""

from __future__ import annotations

import struct
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import strategies as st

from tidegate.formats.protobuf.schema import ProtoSchema, descriptor_schema

F = descriptor_pb2.FieldDescriptorProto
_WELL_KNOWN = (timestamp_pb2, wrappers_pb2, duration_pb2)
_INT32, _INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_UINT32, _UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
_SCALARS = {
    F.TYPE_DOUBLE: st.floats(),
    F.TYPE_FLOAT: st.floats(width=32),
    F.TYPE_INT64: _INT64,
    F.TYPE_UINT64: _UINT64,
    F.TYPE_INT32: _INT32,
    F.TYPE_FIXED64: _UINT64,
    F.TYPE_FIXED32: _UINT32,
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_STRING: st.text(max_size=10),
    F.TYPE_BYTES: st.binary(max_size=10),
    F.TYPE_UINT32: _UINT32,
    F.TYPE_SFIXED32: _INT32,
    F.TYPE_SFIXED64: _INT64,
    F.TYPE_SINT32: _INT32,
    F.TYPE_SINT64: _INT64,
}
_KEYS = [F.TYPE_STRING, F.TYPE_INT32, F.TYPE_UINT64, F.TYPE_BOOL]
_MESSAGES = [".p.Inner", ".google.protobuf.Timestamp", ".google.protobuf.Duration"]
_MESSAGES += [f".google.protobuf.{kind}Value" for kind in ("Int64", "String", "Bool", "Double", "UInt32")]


class Drawn:
    """A message's type: `message` makes one, `schema` is tidegate's of it."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        files = descriptor_pb2.FileDescriptorSet()
        for module in _WELL_KNOWN:
            module.DESCRIPTOR.CopyToProto(files.file.add())
        files.file.append(file)
        pool = descriptor_pool.DescriptorPool()
        for file_proto in files.file:
            pool.Add(file_proto)
        self.message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Outer"))
        self.schema: ProtoSchema = descriptor_schema(files.SerializeToString())

    def __repr__(self) -> str:
        return repr(self.message.DESCRIPTOR.fields)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """Outer, with fields of all kinds, and Inner, with some."""
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="p", syntax="proto3")
    file.dependency.extend(module.DESCRIPTOR.name for module in _WELL_KNOWN)
    enum = file.enum_type.add(name="E")
    for number, name in enumerate(("ZERO", "ONE", "TWO")):
        enum.value.add(name=name, number=number)
    inner = file.message_type.add(name="Inner")
    outer = file.message_type.add(name="Outer")
    for at in range(draw(st.integers(1, 3))):
        _add_field(draw, inner, at, [F.TYPE_ENUM, *_SCALARS])
    for at in range(draw(st.integers(1, 5))):
        _add_field(draw, outer, at, [F.TYPE_ENUM, F.TYPE_MESSAGE, F.TYPE_MESSAGE, *_SCALARS])
    if draw(st.booleans()):
        _add_oneof(draw, outer)
    return Drawn(file)


def _add_field(draw: st.DrawFn, message: Any, at: int, kinds: list[int]) -> None:
    form = draw(st.sampled_from(["implicit", "explicit", "repeated", "map"]))
    number = draw(st.integers(1, 3)) + at * 10
    if form == "map":
        return _add_map(draw, message, at, number)
    field = message.field.add(name=f"f{at}", number=number, label=F.LABEL_OPTIONAL)
    _set_type(draw, field, kinds)
    if form == "repeated":
        field.label = F.LABEL_REPEATED
        if field.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE) and draw(st.booleans()):
            field.options.packed = False
    elif form == "explicit" and field.type != F.TYPE_MESSAGE:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_f{at}")
    return None


def _set_type(draw: st.DrawFn, field: Any, kinds: list[int]) -> None:
    field.type = draw(st.sampled_from(kinds))
    if field.type == F.TYPE_ENUM:
        field.type_name = ".p.E"
    elif field.type == F.TYPE_MESSAGE:
        field.type_name = draw(st.sampled_from(_MESSAGES))


def _add_map(draw: st.DrawFn, message: Any, at: int, number: int) -> None:
    entry = message.nested_type.add(name=f"F{at}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=draw(st.sampled_from(_KEYS)))
    _set_type(draw, entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL), [F.TYPE_ENUM, *_SCALARS])
    type_name = f".p.{message.name}.F{at}Entry"
    message.field.add(
        name=f"f{at}", number=number, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=type_name
    )


def _add_oneof(draw: st.DrawFn, message: Any) -> None:
    """Declared first, as real oneofs are: the ones of `optional` come behind them."""
    oneof = message.oneof_decl.add(name="choice")
    shifted = [*message.oneof_decl]
    del message.oneof_decl[:]
    message.oneof_decl.extend([oneof, *shifted[:-1]])
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index += 1
    for at in range(2, 4):
        kinds = [F.TYPE_MESSAGE, F.TYPE_ENUM, F.TYPE_STRING, F.TYPE_SINT32]
        field = message.field.add(name=f"c{at}", number=100 + at, label=F.LABEL_OPTIONAL, oneof_index=0)
        _set_type(draw, field, kinds)


def values(drawn: Drawn) -> st.SearchStrategy[Any]:
    """Messages of the type."""
    return st.builds(drawn.message.FromString, _texts(drawn.message.DESCRIPTOR))


@st.composite
def _texts(draw: st.DrawFn, descriptor: Any) -> bytes:
    message = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if draw(st.integers(0, 3)) == 0:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields
            for _ in range(draw(st.integers(0, 3))):
                getattr(message, field.name)[draw(_scalars(key))] = draw(_scalars(value))
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 4))):
                if field.message_type is not None:
                    getattr(message, field.name).add().MergeFromString(draw(_message(field)))
                else:
                    getattr(message, field.name).append(draw(_scalars(field)))
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            getattr(message, field.name).MergeFromString(draw(_message(field)))
        else:
            setattr(message, field.name, draw(_scalars(field)))
    return bytes(message.SerializeToString())


def _scalars(field: Any) -> st.SearchStrategy[Any]:
    return st.integers(0, 4) if field.enum_type is not None else _SCALARS[field.type]


def _message(field: Any) -> st.SearchStrategy[bytes]:
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return st.builds(_timestamp, st.integers(-(10**10), 10**11), st.integers(0, 999_999_999))
    return _texts(field.message_type)


def _timestamp(seconds: int, nanos: int) -> bytes:
    return bytes(timestamp_pb2.Timestamp(seconds=seconds, nanos=nanos).SerializeToString())


def plain(message: Any) -> dict[str, Any]:
    """A message as its columns are."""
    return {field.name: _column(message, field) for field in message.DESCRIPTOR.fields}


def _column(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _, item = field.message_type.fields
        return {_key(name): _plain(value[name], item) for name in value}
    if field.is_repeated:
        return [_plain(item, field) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(value, field)


def _key(name: Any) -> str:
    return str(name).lower() if isinstance(name, bool) else str(name)


def _plain(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return datetime(1970, 1, 1) + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        if name.endswith("Value"):
            return _plain(value.value, field.message_type.fields[0])
        return plain(value)
    if field.enum_type is not None:
        return getattr(field.enum_type.values_by_number.get(value), "name", str(value))
    if field.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
        return Decimal(value)
    return struct.pack("<d", value) if isinstance(value, float) else value
