"""Write emissions as Protobuf: the bytes of whole columns, by any message that has a field for each
column.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.binary import (
    Write,
    entry_lists,
    fixed,
    fractions,
    integer_values,
    joined,
    lengths_of,
    list_sizes,
    of_present,
    per_list,
    required,
    texts,
    varint,
    varints,
    zigzag,
)
from tidegate.formats.protobuf.schema import (
    TIMESTAMP,
    WRAPPERS,
    ProtoEnum,
    ProtoField,
    ProtoMessage,
    ProtoSchema,
)
from tidegate.formats.schemas import SchemaFault, Unwritable

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_WIRE = {
    **dict.fromkeys(("fixed64", "sfixed64", "double"), _EIGHT),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), _FOUR),
    **dict.fromkeys(("string", "bytes", "message"), _LENGTH),
}
"""The wire type of a kind; all other kinds are varints."""
_FITTING: dict[str, tuple[pa.DataType, ...]] = {
    "bool": (pa.bool_(),),
    "string": (pa.string(),),
    "enum": (pa.string(),),
    "bytes": (pa.binary(),),
    "float": (pa.float32(),),
    "double": (pa.float32(), pa.float64()),
    **dict.fromkeys(
        ("int32", "sint32", "sfixed32", "uint32", "fixed32"), (pa.int8(), pa.int16(), pa.int32())
    ),
    **dict.fromkeys(
        ("int64", "sint64", "sfixed64", "uint64", "fixed64"), (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    ),
}
"""Kind -> the columns that it can hold, except columns that are written as text; see `_is_text`."""
_UNSIGNED = ("uint32", "uint64", "fixed32", "fixed64")
_NOTHING = b""


def protobuf_writer(schema: ProtoSchema, message: str, columns: pa.Schema) -> Write:
    """Return what writes structs of these columns as messages; null (a deletion) stays null.

    Each column is written to the field of its name. If a field has no presence, null is written as its
    default.

    Args:
        message: The full name of the message.

    Raises SchemaFault if a column has no field, or one that does not hold all of its values, or if a
    `required` field has no column. The function that is returned raises Unwritable for a value that the
    message cannot express.
    """
    return partial(of_present, write=_Writers(schema).message(message, columns, "$"), absent=None)


def message_indexes(schema: ProtoSchema, message: str) -> bytes:
    r"""Return the bytes between a schema's id and a message in Confluent's wire format.

    Example::

        message_indexes(schema, "first.Message")  # b"\x00": the first message has a short form
    """
    path = schema.path(message)
    if path == (0,):
        return b"\x00"
    numbers = zigzag(np.array([len(path), *path]))
    return b"".join(varints(numbers).to_pylist())


class _Writers:
    """Makes writers for a schema. `path` names a place in faults."""

    def __init__(self, schema: ProtoSchema) -> None:
        self._schema = schema

    def message(self, name: str, columns: Iterable[pa.Field], path: str) -> Write:
        by_name = {column.name: (place, column.type) for place, column in enumerate(columns)}
        fields = self._schema.message(name).fields
        _require_places(self._schema.message(name), by_name, name, path)
        parts = [
            (by_name[field.name][0], self._field(field, by_name[field.name][1], f"{path}.{field.name}"))
            for field in fields
            if field.name in by_name
        ]
        oneofs = [
            [by_name[field.name][0] for field in fields if field.oneof == oneof and field.name in by_name]
            for oneof in sorted({field.oneof for field in fields if field.oneof})
        ]

        def write(values: pa.StructArray) -> pa.BinaryArray:
            arrays = values.flatten()
            # a reader would keep only the last member, and the other values would be lost without a word
            for places in oneofs:
                _require_one([arrays[place] for place in places], path)
            return joined(*(write_field(arrays[place]) for place, write_field in parts), b"")

        return write

    def _field(self, field: ProtoField, column: pa.DataType, path: str) -> Write:
        if field.kind == "message" and self._schema.messages[field.type].is_entry:
            return self._map(field, column, path)
        if field.is_repeated:
            if not pt.is_list(column):
                raise _misfit(field, column, path)
            return self._list(field, column.value_type, path)
        write = self._tagged(field, column, path)
        if field.presence == "required":
            return required(write, path)
        if field.presence == "implicit" and field.kind != "message":
            write = partial(_unless_default, self._default(field), write)
        return partial(of_present, write=write, absent=_NOTHING)

    def _tagged(self, field: ProtoField, column: pa.DataType, path: str) -> Write:
        tag, plain = _tag(field), self._plain(field, column, path)
        if _wire(field.kind) != _LENGTH:
            return lambda values: joined(tag, plain(values))
        return lambda values: joined(tag, _with_length(plain(values)))

    def _plain(self, field: ProtoField, column: pa.DataType, path: str) -> Write:
        """Return what writes the value without its length."""
        kind = field.kind
        if kind == "message":
            return self._inner(field, column, path)
        if column not in _FITTING.get(kind, ()) and not (kind == "string" and _is_text(column)):
            raise _misfit(field, column, path)
        if kind in ("string", "bytes"):
            return _texts
        if kind == "enum":
            return partial(_numbers, self._schema.enums[field.type], field.type, path)
        if kind in ("float", "double"):
            return lambda values: fractions(values.cast(pa.float32() if kind == "float" else pa.float64()))
        write = partial(_integers, kind)
        return partial(_unsigned, path, write) if kind in _UNSIGNED else write

    def _inner(self, field: ProtoField, column: pa.DataType, path: str) -> Write:
        if field.type == TIMESTAMP and pt.is_timestamp(column) and column.tz:
            return _instants
        if field.type in WRAPPERS and not pt.is_struct(column):
            return self._field(self._schema.messages[field.type].fields[0], column, path)
        if not pt.is_struct(column):
            raise _misfit(field, column, path)
        return self.message(field.type, column, path)

    def _list(self, field: ProtoField, column: pa.DataType, path: str) -> Write:
        inner = f"{path}[...]"
        if _wire(field.kind) == _LENGTH:
            item = required(self._tagged(field, column, inner), inner)
            return lambda values: per_list(values, item(values.flatten()))
        # proto3 packs numbers; readers of proto2 accept both forms, too
        plain, tag = required(self._plain(field, column, inner), inner), varint(field.number << 3 | _LENGTH)

        def write(values: pa.ListArray) -> pa.BinaryArray:
            packed = joined(tag, _with_length(per_list(values, plain(values.flatten()))))
            return pc.if_else(pa.array(list_sizes(values) > 0), packed, pa.scalar(_NOTHING, pa.binary()))

        return write

    def _map(self, field: ProtoField, column: pa.DataType, path: str) -> Write:
        key, value = self._schema.messages[field.type].fields
        if not pt.is_map(column):
            raise _misfit(field, column, path)
        inner, tag = f"{path}[...]", _tag(field)
        write_key = self._tagged(key, column.key_type, inner)
        # an entry's missing value would be read as the default, not as null
        write_item = required(self._tagged(value, column.item_type, inner), inner)

        def write(values: pa.MapArray) -> pa.BinaryArray:
            lists = entry_lists(values)
            keys, items = lists.flatten().flatten()
            return per_list(lists, joined(tag, _with_length(joined(write_key(keys), write_item(items)))))

        return write

    def _default(self, field: ProtoField) -> bytes:
        """Return the bytes of the default value with its tag, to compare written values with."""
        wire, number = _wire(field.kind), 0
        if field.kind == "enum":
            number = self._schema.enums[field.type].names[0][0]
        sizes = {_EIGHT: bytes(8), _FOUR: bytes(4)}
        return _tag(field) + sizes.get(wire, varint(number & 2**64 - 1))


def _require_places(message: ProtoMessage, columns: Iterable[str], name: str, path: str) -> None:
    names = {field.name for field in message.fields}
    extra = next((column for column in columns if column not in names), None)
    if extra is not None:
        raise SchemaFault(f"the column `{path}.{extra}` has no field in the message `{name}`")
    missing = (f.name for f in message.fields if f.presence == "required" and f.name not in set(columns))
    if (first := next(missing, None)) is not None:
        raise SchemaFault(f"the field `{path}.{first}` is required, and has no column")


def _misfit(field: ProtoField, column: pa.DataType, path: str) -> SchemaFault:
    what = f"{'repeated ' if field.is_repeated else ''}{field.type or field.kind}"
    return SchemaFault(f"`{path}` is a column of type `{column}`, which a field `{what}` does not hold")


def _require_one(members: list[pa.Array], path: str) -> None:
    present = np.sum([member.is_valid().to_numpy(zero_copy_only=False) for member in members], axis=0)
    if len(members) > 1 and (present > 1).any():
        raise Unwritable(f"`{path}` has values for several members of a `oneof`")


def _is_text(column: pa.DataType) -> bool:
    """Return whether a column is written as text, because Protobuf has no type for it."""
    return bool(pt.is_decimal(column) or pt.is_date(column) or (pt.is_timestamp(column) and not column.tz))


def _texts(values: pa.Array) -> pa.BinaryArray:
    if pt.is_timestamp(values.type):
        return texts(pc.binary_replace_slice(values.cast(pa.timestamp("us")).cast(pa.string()), 10, 11, "T"))
    return texts(values if pt.is_binary(values.type) else values.cast(pa.string()))


def _integers(kind: str, values: pa.Array) -> pa.BinaryArray:
    numbers = integer_values(values)
    if kind.startswith("sint"):
        return varints(zigzag(numbers))
    if (wire := _wire(kind)) != _VARINT:
        return fixed(numbers.astype("<i8" if wire == _EIGHT else "<i4"))
    # negative numbers take ten bytes, also of `int32`: Protobuf extends them to 64 bits
    return varints(numbers.astype(np.uint64))


def _unsigned(path: str, write: Write, values: pa.Array) -> pa.BinaryArray:
    if (integer_values(values) < 0).any():
        raise Unwritable(f"`{path}` has a number below 0")
    return write(values)


def _numbers(enum: ProtoEnum, name: str, path: str, values: pa.StringArray) -> pa.BinaryArray:
    places = pc.index_in(values, value_set=pa.array([name for _, name in enum.names]))
    if places.null_count:
        unknown = values.filter(places.is_null())[0].as_py()
        raise Unwritable(f"`{path}` is {unknown[:60]!r}, which the enum `{name}` does not have")
    numbers: npt.NDArray[np.int64] = np.array([number for number, _ in enum.names])
    return varints(numbers[places.to_numpy()].astype(np.uint64))


def _instants(values: pa.TimestampArray) -> pa.BinaryArray:
    """Write seconds and nanoseconds, each only if it is not 0."""
    seconds, rest = np.divmod(integer_values(values), 1_000_000)
    pieces = [
        pc.if_else(
            pa.array(part != 0),
            joined(varint(number << 3 | _VARINT), varints(part.astype(np.uint64))),
            pa.scalar(_NOTHING, pa.binary()),
        )
        for number, part in ((1, seconds), (2, rest * 1_000))
    ]
    return joined(*pieces)


def _unless_default(default: bytes, write: Write, values: pa.Array) -> pa.BinaryArray:
    written = write(values)
    # proto3 does not write the default of a field without presence
    is_default = pc.equal(written, pa.scalar(default, pa.binary()))
    return pc.if_else(is_default, pa.scalar(_NOTHING, pa.binary()), written)


def _wire(kind: str) -> int:
    return _WIRE.get(kind, _VARINT)


def _tag(field: ProtoField) -> bytes:
    return varint(field.number << 3 | _wire(field.kind))


def _with_length(pieces: pa.BinaryArray) -> pa.BinaryArray:
    return joined(varints(lengths_of(pieces).astype(np.uint64)), pieces)
