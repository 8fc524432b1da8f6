"""JSON records with a schema, from a file, or from a registry whose id is at the beginning of each value."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.formats.confluent import ConfluentDecoder
from tidegate.formats.decoded import Decoder
from tidegate.formats.json import OlderNames
from tidegate.formats.reasons import Reason
from tidegate.formats.wire import Cursor, Wire
from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.pinned import PinnedSchema, SourceSchemas

_PREFIX = f"{Reason.MALFORMED}: "


def json_decoder(columns: pa.Schema, schemas: SourceSchemas, aliases: OlderNames) -> Decoder:
    """Return what decodes values that satisfy the reader's schema, or without one the writer's.

    Raises SchemaFault if the source has neither a schema file nor a registry, or if a schema is not usable.
    """
    if schemas.writers is None:
        if schemas.reader is None:
            raise SchemaFault("the source has neither a schema file nor a registry")
        return _decoder(columns, schemas.reader, aliases)
    pinned = {writer.id: writer.schema for writer in schemas.writers}
    return ConfluentDecoder(
        columns,
        pinned,
        lambda schema, _: _FramedJson(_decoder(columns, schemas.reader or schema, aliases)),
        has_indexes=False,
    )


def _decoder(columns: pa.Schema, schema: PinnedSchema, aliases: OlderNames) -> Decoder:
    from tidegate.formats.json_schema import (
        JsonSchemaDecoder,  # imported here: it needs the optional package jsonschema
    )

    return JsonSchemaDecoder(columns, schema.json_schema(), aliases)


class _FramedJson:
    """Decodes the values behind the ids of one schema."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def read(self, wire: Wire, cursor: Cursor) -> Sequence[pa.Array]:
        """Return the columns of the values at the cursor's positions; see `confluent.Subdecoder`."""
        spans = zip(cursor.at.tolist(), cursor.ends.tolist(), strict=True)
        decoded = self._decoder.decode([bytes(wire.data[start:end]) for start, end in spans])
        for place, reason in decoded.reasons.items():
            wire.faults.setdefault(int(cursor.rows[place]), reason.removeprefix(_PREFIX))
        columns: Sequence[pa.Array] = decoded.columns.flatten()
        return columns
