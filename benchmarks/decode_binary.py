"""Records of ten fields in Avro and Protobuf: decoded by `tidegate.formats`, and by libraries in a loop."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import fastavro
import pyarrow as pa
import xxhash
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from benchmarks.events import Load, draw, key, timestamp_ms
from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats.avro.schema import avro_columns, pin_avro, pinned_avro
from tidegate.formats.protobuf.schema import descriptor_schema, pinned_protobuf, proto_columns, proto_to_json
from tidegate.formats.schemas import PinnedSchema, SourceSchemas, WriterSchema

_BLOCK = 16_384
_KEY = ("storeId", "id")
_SAME = ("__offset", "__key", "__hash", "__timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_KINDS = ("NEW", "USED", "REPAIRED")
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Stock",
    "namespace": "shop",
    "fields": [
        {"name": "storeId", "type": "string"},
        {"name": "id", "type": "long"},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": ["null", "double"]},
        {"name": "name", "type": ["null", "string"]},
        {"name": "active", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "weight", "type": "float"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": list(_KINDS)}},
        {"name": "shelf", "type": "string"},
    ],
}

Work = Callable[[], list[pa.RecordBatch]]
Row = Mapping[str, Any]


def binary_works(load: Load) -> dict[str, tuple[Work, Work]]:
    """Work -> columns and loop, which give the same rows."""
    blocks = list(_blocks(load))
    return {
        "Avro of ten fields, beside fastavro": _avro(blocks),
        "Avro in Confluent's format, beside its deserialiser": _confluent(blocks),
        "Protobuf of ten fields, beside its library": _protobuf(blocks),
    }


def _blocks(load: Load) -> Iterator[tuple[range, list[bytes], list[Row]]]:
    """Offsets, keys and rows of one topic-partition."""
    for begin, products, quantities in draw(load):
        for start in range(0, len(products), _BLOCK):
            drawn = list(zip(products, quantities, strict=True))[start : start + _BLOCK]
            offsets = range(begin + start, begin + start + len(drawn))
            keys = [key(product).encode() for product, _ in drawn]
            rows = [_row(at, *pair) for at, pair in zip(offsets, drawn, strict=True)]
            yield offsets, keys, rows


def _row(offset: int, product: int, quantity: int) -> Row:
    return {
        "storeId": f"store-{product % 100}",
        "id": product,
        "quantity": quantity,
        "price": None if quantity % 3 else product / 8,
        "name": None if quantity % 4 == 0 else f"product number {product}",
        "active": quantity > 0,
        "at": _EPOCH + timedelta(milliseconds=timestamp_ms(offset)),
        "weight": quantity / 4,
        "kind": _KINDS[product % 3],
        "shelf": f"{product % 977}/{quantity}",
    }


def _records(blocks: Sequence[Any], write: Callable[[Row], bytes]) -> list[Records]:
    return [
        Records("stock", 0, at, list(map(timestamp_ms, at)), keys, list(map(write, rows)), [None] * len(at))
        for at, keys, rows in blocks
    ]


def _works(layout: RecordLayout, blocks: list[Records], read: Callable[[bytes], Row]) -> tuple[Work, Work]:
    decoder = FrameDecoder(layout, None, False)
    names = (*_SAME, *layout.columns.names)
    return (
        lambda: [rows.select(names) for block in blocks for rows in decoder.decode(block)],
        lambda: [_looped(layout.columns, block, read) for block in blocks],
    )


def _looped(columns: pa.Schema, records: Records, read: Callable[[bytes], Row]) -> pa.RecordBatch:
    """The loop, as one would write it: no check of anything."""
    rows: list[Sequence[Any]] = []
    for place, value in enumerate(records.values):
        row = read(value or b"")
        name = json.dumps({name: row[name] for name in _KEY}, separators=(",", ":"))
        hash_ = xxhash.xxh64_intdigest(name.encode(), 42)
        signed = hash_ - 2**64 if hash_ >= 2**63 else hash_
        rows.append((records.offsets[place], name, signed, records.timestamps[place], *row.values()))
    types = [pa.int64(), pa.string(), pa.int64(), pa.int64(), *columns.types]
    arrays = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.record_batch(arrays, [*_SAME, *columns.names])


def _avro(blocks: Sequence[Any]) -> tuple[Work, Work]:
    parsed = fastavro.parse_schema(SCHEMA)

    def write(row: Row) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        return out.getvalue()

    def read(value: bytes) -> Row:
        row: Any = fastavro.schemaless_reader(io.BytesIO(value), parsed, None)
        return dict(row)

    schema = pin_avro(json.dumps(SCHEMA), {})
    layout = RecordLayout("avro", avro_columns(pinned_avro(schema)), _KEY, schemas=SourceSchemas(schema))
    return _works(layout, _records(blocks, write), read)


def _confluent(blocks: Sequence[Any]) -> tuple[Work, Work]:
    """The client's registry in memory: it is asked once."""
    client: Any = SchemaRegistryClient.new_client({"url": "mock://"})
    context = SerializationContext("stock", MessageField.VALUE)
    write = AvroSerializer(client, json.dumps(SCHEMA))
    read = AvroDeserializer(client)
    records = _records(blocks, lambda row: bytes(write(row, context) or b""))
    schema = pin_avro(json.dumps(SCHEMA), {})
    id_ = int.from_bytes((records[0].values[0] or b"")[1:5], "big")
    schemas = SourceSchemas(schema, (WriterSchema("stock-value", 1, id_, schema),))
    layout = RecordLayout("avro", avro_columns(pinned_avro(schema)), _KEY, schemas=schemas)
    return _works(layout, records, lambda value: dict(read(value, context)))


def _protobuf(blocks: Sequence[Any]) -> tuple[Work, Work]:
    files = _descriptors()
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Stock"))

    def write(row: Row) -> bytes:
        given = {name: value for name, value in row.items() if value is not None}
        return bytes(message(**given).SerializeToString())

    def read(value: bytes) -> Row:
        record = message.FromString(value)
        at = record.at
        return {
            "storeId": record.storeId,
            "id": record.id,
            "quantity": record.quantity,
            "price": record.price if record.HasField("price") else None,
            "name": record.name if record.HasField("name") else None,
            "active": record.active,
            "at": _EPOCH + timedelta(seconds=at.seconds, microseconds=at.nanos // 1000),
            "weight": record.weight,
            "kind": _KINDS[record.kind],
            "shelf": record.shelf,
        }

    pinned = PinnedSchema(proto_to_json(descriptor_schema(files.SerializeToString())))
    columns = proto_columns(pinned_protobuf(pinned), "shop.Stock")
    layout = RecordLayout("protobuf", columns, _KEY, schemas=SourceSchemas(pinned), message="shop.Stock")
    return _works(layout, _records(blocks, write), read)


def _descriptors() -> descriptor_pb2.FileDescriptorSet:
    """Describe the same record in Protobuf, with two `optional` fields."""
    kinds = descriptor_pb2.FieldDescriptorProto
    types = {"string": kinds.TYPE_STRING, "long": kinds.TYPE_INT64, "int": kinds.TYPE_INT32}
    types |= {"double": kinds.TYPE_DOUBLE, "float": kinds.TYPE_FLOAT, "boolean": kinds.TYPE_BOOL}
    file = descriptor_pb2.FileDescriptorProto(name="stock.proto", package="shop", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    enum = file.enum_type.add(name="Kind")
    for number, name in enumerate(_KINDS):
        enum.value.add(name=name, number=number)
    record = file.message_type.add(name="Stock")
    for number, field in enumerate(SCHEMA["fields"], start=1):
        added = record.field.add(name=field["name"], number=number, label=kinds.LABEL_OPTIONAL)
        if field["name"] == "at":
            added.type, added.type_name = kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp"
        elif field["name"] == "kind":
            added.type, added.type_name = kinds.TYPE_ENUM, ".shop.Kind"
        elif isinstance(field["type"], list):
            added.type, added.proto3_optional = types[field["type"][1]], True
            added.oneof_index = len(record.oneof_decl)
            record.oneof_decl.add(name=f"_{field['name']}")
        else:
            added.type = types[field["type"]]
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files
