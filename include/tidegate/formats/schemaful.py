"""Make the decoder of records with schemas: one schema from a file, or one for each id of a registry."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from tidegate.formats.avro import AvroDecoder
from tidegate.formats.confluent import ConfluentDecoder, Subdecoder
from tidegate.formats.decoded import Decoder
from tidegate.formats.protobuf import ProtobufDecoder
from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.pinned import PinnedSchema, SourceSchemas
from tidegate.schemas.protobuf import ProtoSchema


def schemaful_decoder(
    format_: str, columns: pa.Schema, schemas: SourceSchemas, message: str | None
) -> Decoder:
    """Return the decoder of a source's records.

    Args:
        message: The full name of the Protobuf message; None for Avro.

    Raises SchemaFault if the columns do not fit the file's schema.
    """
    if schemas.writers is None:
        return file_decoder(format_, columns, schemas.reader, message)
    if schemas.reader is not None:
        file_decoder(format_, columns, schemas.reader, message)  # checked now: it must fit any writer
    pinned = {writer.id: writer.schema for writer in schemas.writers}
    if format_ == "avro":
        reader = schemas.reader.avro() if schemas.reader else None
        return ConfluentDecoder(
            columns, pinned, lambda schema, _: AvroDecoder(columns, schema.avro(), reader), has_indexes=False
        )
    return ConfluentDecoder(columns, pinned, _by_indexes(columns, schemas.reader, message), has_indexes=True)


def file_decoder(
    format_: str, columns: pa.Schema, schema: PinnedSchema | None, message: str | None
) -> AvroDecoder | ProtobufDecoder:
    """Return the decoder of records that are written by the file's schema.

    Raises SchemaFault if there is no schema, or if the columns do not fit it.
    """
    if schema is None:
        raise SchemaFault("the source has neither a schema file nor a registry")
    if format_ == "avro":
        reader = schema.avro()
        return AvroDecoder(columns, reader, reader)
    return ProtobufDecoder(columns, schema.protobuf(), message or "")


def _by_indexes(
    columns: pa.Schema, reader: PinnedSchema | None, message: str | None
) -> Callable[[PinnedSchema, tuple[int, ...]], Subdecoder]:
    parsed = reader.protobuf() if reader else None
    return partial(_proto_decoder, columns, parsed, message)


def _proto_decoder(
    columns: pa.Schema,
    reader: ProtoSchema | None,
    message: str | None,
    schema: PinnedSchema,
    indexes: tuple[int, ...],
) -> Subdecoder:
    """Return a decoder by the field numbers of the file, or else by those of the writer's message."""
    writer = schema.protobuf()
    name = writer.at(indexes)
    if name is None:
        raise SchemaFault(f"it has no message at {list(indexes)}")
    if message is not None and name != message:
        raise SchemaFault(f"it is a `{name}`, and not a `{message}`")
    # without a file, older writers lack columns that were added later: these are null
    return ProtobufDecoder(columns, reader or writer, name, lenient=reader is None)
