"""`format: avro`: each value is the binary encoding of one record, without its schema.

A writer's schema, a reader's schema and columns are resolved to a reader of the writer's values, by Avro's
specification: fields by name or alias, defaults, promotions, defaults of enums. Without a reader's schema the
columns take its place: a field that the writer does not have is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pt

from tidegate.formats import binary
from tidegate.formats.avro import read as reads
from tidegate.formats.avro.schema import (
    NO_DEFAULT,
    AvroField,
    AvroType,
    avro_columns,
    parse_avro,
    pin_avro,
    pinned_avro,
)
from tidegate.formats.avro.skip import Passages
from tidegate.formats.avro.write import avro_schema, avro_writer, encoded_value
from tidegate.formats.binary import Write
from tidegate.formats.confluent import schemaful_decoder
from tidegate.formats.decoded import Decoded, Decoder, malformed, room_on_stack
from tidegate.formats.registry import Format, MessageSchemas, SchemaLanguage
from tidegate.formats.schemas import (
    PinnedSchema,
    SchemaFault,
    SinkSchema,
    SourceSchemas,
    id_prefix,
    schema_text,
)
from tidegate.formats.wire import Cursor, Wire

_PROMOTIONS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
"""The kind of the writer -> the kinds of the reader that it can be read as."""
_FACTORS = {
    "timestamp-millis": 1000,
    "timestamp-micros": 1,
    "local-timestamp-millis": 1000,
    "local-timestamp-micros": 1,
}


class AvroDecoder:
    """Decode values of the schema `writer` to the columns of `schema`.

    Args:
        writer: The schema that the values were written by.
        reader: The schema that the pipeline sees; None: fields are matched to columns directly.

    Raises SchemaFault if the schemas and the columns do not fit together.
    """

    def __init__(self, schema: pa.Schema, writer: AvroType, reader: AvroType | None = None) -> None:
        self.schema = schema
        self._type = pa.struct(list(schema))
        self._records = resolve_records(writer, reader, self._type)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode each value. A value that does not match the schema, or has bytes left over, is unusable."""
        wire, cursor = Wire.from_values(values)
        absent = [row for row, value in enumerate(values) if value is None]
        # a tombstone has no bytes, which is not a fault: it is not read at all
        if absent:
            cursor = cursor.part(binary.rows_except(len(values), absent))
        columns = self.read(wire, cursor)
        if absent:
            columns = [binary.placed(len(values), [cursor.rows], [column], column.type) for column in columns]
        reasons = {row: malformed(reason) for row, reason in sorted(wire.faults.items())}
        return Decoded(binary.usable_structs(columns, self._type, values, reasons), reasons)

    def read(self, wire: Wire, cursor: Cursor) -> list[pa.Array]:
        """Return the columns of the values at the cursor's positions. Faults are recorded in the wire.

        Args:
            cursor: The beginnings of records; it is moved behind them.
        """
        with room_on_stack():
            records = self._records(wire, cursor)
        # Avro's bytes do not say where a record ends: bytes left over are the sign of another schema
        binary.left_over(wire, cursor)
        columns: list[pa.Array] = records.flatten()
        return columns


def resolve_records(writer: AvroType, reader: AvroType | None, columns: pa.StructType) -> reads.Read:
    """Return what reads the writer's records into the columns.

    If the writer is a union of records, the reader's schema decides which of them is read.

    Raises SchemaFault if no record of the writer could fill the columns.
    """
    try:
        if writer.kind == "union" and reader is None:
            raise SchemaFault("it is a union: set a reader's schema, which says which of its records to read")
        if writer.kind not in ("record", "union"):
            raise SchemaFault(f"it is `{writer.text}`, and not a record")
        return _Resolver().read(writer, reader, columns, "$")
    except RecursionError:
        raise SchemaFault("the schema is nested too deep") from None


class _Resolver:
    def __init__(self) -> None:
        self._passages = Passages()

    def read(self, writer: AvroType, reader: AvroType | None, type_: pa.DataType, path: str) -> reads.Read:
        """Return what reads `writer` as `reader` into a column. Raises SchemaFault if that is impossible.

        Args:
            reader: None: the column takes its place.
            path: Names the value in faults.
        """
        if writer.kind == "union":
            return self.union(writer, reader, type_, path)
        if reader is not None and reader.kind == "union":
            return self.branch(writer, reader, type_, path)
        if writer.kind == "null":
            expected = None if reader is None or reader.kind == "null" else reader.text
            # a null of a union whose reader allows no null is a fault of that value, not of the schema
            return reads.ReadNull(type_, path, expected and f"Expected `{expected}`, got `null`")
        if reader is not None:
            _check_match(writer, reader, path)
        if writer.kind == "record" and pt.is_struct(type_):
            return self.record(writer, reader, type_, path)
        if writer.kind == "array" and pt.is_list(type_):
            item = self.read(writer.items, reader and reader.items, type_.value_type, f"{path}[...]")
            return reads.ReadArray(item, self._passages.for_items(writer, path), type_, path)
        if writer.kind == "map" and pt.is_map(type_):
            item = self.read(writer.items, reader and reader.items, type_.item_type, f"{path}[...]")
            return reads.ReadMap(item, self._passages.for_items(writer, path), type_, path)
        return _scalar(writer, reader, type_, path)

    def union(
        self, writer: AvroType, reader: AvroType | None, type_: pa.DataType, path: str
    ) -> reads.ReadUnion:
        """Return a reader of a union. Values of a branch that does not fit are faults; at least one branch
        must fit.

        Args:
            writer: The union; each value begins with the number of its branch.

        Raises SchemaFault if no branch fits.
        """
        branches: list[reads.Read] = []
        misfit: SchemaFault | None = None
        fits = False
        for branch in writer.types:
            try:
                branches.append(self.read(branch, reader, type_, path))
                fits = fits or branch.kind != "null"
            except SchemaFault as fault:
                misfit = fault
                skip = self._passages.for_type(branch, path).skip
                branches.append(reads.ReadMisfit(skip, type_, path, f"It is a `{branch.text}`"))
        if misfit is not None and not fits:
            raise misfit
        return reads.ReadUnion(branches, type_, path)

    def branch(self, writer: AvroType, reader: AvroType, type_: pa.DataType, path: str) -> reads.Read:
        """Return a reader by the reader's branch with the writer's kind and name, or else by the first
        that fits.

        Args:
            reader: The union.

        Raises SchemaFault if no branch fits.
        """
        # False sorts first: the branch of the same kind and name
        for branch in sorted(reader.types, key=lambda branch: not _is_same(writer, branch)):
            try:
                if (branch.kind == "null") == (writer.kind == "null"):
                    return self.read(writer, branch, type_, path)
            except SchemaFault:
                continue
        raise SchemaFault(f"`{path}` is `{writer.text}`, which the reader's `{reader.text}` has not")

    def record(
        self, writer: AvroType, reader: AvroType | None, type_: pa.StructType, path: str
    ) -> reads.ReadRecord:
        written = {field.name: field for field in writer.fields}
        sources = {} if reader is None else _sources(reader, written)
        places: dict[str, tuple[int, reads.Read]] = {}
        constants: list[tuple[int, pa.Array]] = []
        for place, column in enumerate(type_):
            inner = f"{path}.{column.name}"
            reader_field = None if reader is None else _named(reader, column.name, inner)
            writer_field = (
                written.get(column.name) if reader_field is None else sources.get(reader_field.name)
            )
            if writer_field is None:
                constants.append((place, self.missing(reader_field, column.type, inner)))
            else:
                reading = None if reader_field is None else reader_field.type
                read = self.read(writer_field.type, reading, column.type, inner)
                places[writer_field.name] = (place, read)
        fields = [
            # also a field without a column must be read over: the next field begins behind it
            places.get(field.name) or (None, self._passages.for_type(field.type, f"{path}.{field.name}").skip)
            for field in writer.fields
        ]
        return reads.ReadRecord(fields, constants, type_)

    def missing(self, reader_field: AvroField | None, type_: pa.DataType, path: str) -> pa.Array:
        """Return the one value of a column that the writer does not have: the reader's default, or null.

        Args:
            reader_field: None if there is no reader's schema.

        Raises SchemaFault if the field has no default, or one that does not fit the column.
        """
        if reader_field is None:
            return pa.nulls(1, type_)
        if reader_field.default is NO_DEFAULT:
            raise SchemaFault(f"`{path}` is not written, and has no default")
        # encoded and read back, so that a default becomes a value in the same way as a written one
        wire, cursor = Wire.from_values([encoded_value(reader_field.type, reader_field.default, path)])
        value = self.read(reader_field.type, None, type_, path)(wire, cursor)
        if wire.faults:
            raise SchemaFault(f"the default of `{path}` does not fit: {wire.faults[0]}")
        return value


def _named(reader: AvroType, name: str, path: str) -> AvroField:
    field = next((field for field in reader.fields if field.name == name), None)
    if field is None:
        raise SchemaFault(f"`{path}` is not in the schema")
    return field


def _sources(reader: AvroType, written: dict[str, AvroField]) -> dict[str, AvroField]:
    """Return the name of the reader's field -> the writer's field that it is read from, by name or alias.

    No field is read twice: if an alias matches a field of the writer, the reader's field of that name does
    not get it, as in Avro's Java library.
    """
    by_alias: dict[str, str] = {}
    for field in reader.fields:
        alias = next((name for name in field.aliases if name in written), None)
        if field.name not in written and alias is not None:
            by_alias.setdefault(alias, field.name)
    # a field that an alias has taken is no longer read by its own name
    own = {field.name for field in reader.fields} & written.keys() - by_alias.keys()
    return {name: written[name] for name in own} | {name: written[alias] for alias, name in by_alias.items()}


def _is_same(writer: AvroType, reader: AvroType) -> bool:
    return writer.kind == reader.kind and _simple(writer.name) == _simple(reader.name)


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _check_match(writer: AvroType, reader: AvroType, path: str) -> None:
    """Check that the writer's type can be read as the reader's, as far as the types themselves say."""
    matches = reader.kind in _PROMOTIONS.get(writer.kind, (writer.kind,))
    if matches and writer.kind in ("record", "enum", "fixed"):
        names = {_simple(name) for name in (reader.name, *reader.aliases)}
        matches = _simple(writer.name) in names and writer.size == reader.size
    # a decimal's bytes have no scale: with another scale they would be another number
    if matches and {writer.logical, reader.logical} == {"decimal"}:
        matches = writer.scale == reader.scale and writer.precision <= reader.precision
    elif matches and writer.logical and reader.logical:
        matches = _unit(writer.logical) == _unit(reader.logical)
    if not matches:
        raise SchemaFault(f"`{path}` is `{writer.text}`, and the reader's is `{reader.text}`")


def _unit(logical: str) -> str:
    """Return a logical type without the unit that its times are counted in."""
    return logical.rpartition("-")[0] if logical in _FACTORS else logical


def _scalar(writer: AvroType, reader: AvroType | None, type_: pa.DataType, path: str) -> reads.Read:
    meaning = reader or writer
    for make in (_number, _text):
        read = make(writer, meaning, type_, path)
        if read is not None:
            return read
    raise SchemaFault(f"`{path}` is `{meaning.text}`, which cannot be a column of type `{type_}`")


def _number(writer: AvroType, meaning: AvroType, type_: pa.DataType, path: str) -> reads.Read | None:
    kind, logical = writer.kind, meaning.logical or ""
    if kind == "boolean" and pt.is_boolean(type_):
        return partial(reads.read_boolean, path)
    if kind in ("int", "long"):
        if logical == "date" and pt.is_date(type_):
            return partial(reads.read_date, path)
        if logical in _FACTORS and pt.is_timestamp(type_) and (type_.tz is None) == logical.startswith("l"):
            # the writer's unit counts, since the numbers are the writer's
            factor = _FACTORS.get(writer.logical or "", _FACTORS[logical])
            return partial(reads.read_timestamp, factor, type_, path)
        if pt.is_integer(type_) and meaning.kind in ("int", "long"):
            return partial(reads.read_integer, type_, kind == "int", path)
        if pt.is_floating(type_):
            return partial(reads.read_float, kind, type_, path)
    if (kind == "float" and pt.is_floating(type_)) or (kind == "double" and pt.is_float64(type_)):
        return partial(reads.read_float, kind, type_, path)
    return None


def _text(writer: AvroType, meaning: AvroType, type_: pa.DataType, path: str) -> reads.Read | None:
    size = writer.size or None
    if writer.logical == "decimal" and pt.is_decimal(type_):
        return reads.ReadDecimal(size, writer.scale, type_, path)
    if writer.kind == "fixed" and meaning.logical == "uuid" and pt.is_string(type_):
        return partial(reads.read_uuid, path)
    is_text = pt.is_string(type_) and writer.kind != "fixed"
    if writer.kind in ("bytes", "string", "fixed") and (is_text or pt.is_binary(type_)):
        return partial(reads.read_bytes, size, is_text, path)
    if writer.kind == "enum" and pt.is_string(type_):
        return partial(reads.read_enum, _symbols(writer, meaning), path)
    return None


def _symbols(writer: AvroType, reader: AvroType) -> list[str | None]:
    """Return the reader's symbol, or its default, for each of the writer's symbols."""
    return [symbol if symbol in reader.symbols else reader.default_symbol for symbol in writer.symbols]


def _decoder(columns: pa.Schema, schemas: SourceSchemas) -> Decoder:
    reader = pinned_avro(schemas.reader) if schemas.reader else None
    return schemaful_decoder(
        columns,
        schemas,
        lambda schema: _file_decoder(columns, schema),
        lambda schema, _: AvroDecoder(columns, pinned_avro(schema), reader),
    )


def _file_decoder(columns: pa.Schema, schema: PinnedSchema, _: str | None = None) -> AvroDecoder:
    reader = pinned_avro(schema)
    return AvroDecoder(columns, reader, reader)


def _message_schema(path: Path) -> SinkSchema:
    text = schema_text(path)
    parse_avro(text)
    return SinkSchema(None, text)


def _writer(schema: SinkSchema, columns: pa.Schema) -> tuple[bytes, Write]:
    return id_prefix(schema), avro_writer(parse_avro(schema.text), columns)


_LANGUAGE = SchemaLanguage(
    "AVRO",
    (".avsc",),
    pin=pin_avro,
    read=lambda path: pin_avro(schema_text(path), {}),
    columns=lambda schema, _: avro_columns(pinned_avro(schema)),
    record_name=lambda schema: pinned_avro(schema).name or None,
    check=_file_decoder,
    encode=lambda schema, value: encoded_value(pinned_avro(schema), value, "$"),
)
FORMATS = (
    Format(
        "avro",
        lambda layout: _decoder(layout.columns, layout.schemas),
        key_decoder=_decoder,
        language=_LANGUAGE,
        needs_schema=True,
        renaming="Rename it in the reader's schema, with its older names as `aliases` there.",
        is_sent=True,
        messages=MessageSchemas(
            (".avsc",),
            read=_message_schema,
            derive=lambda name, namespace, columns, _: SinkSchema(
                None, avro_schema(name, namespace, columns)
            ),
            writer=_writer,
        ),
    ),
)
