"""Schemas as a plan keeps them: whatever becomes of their files and registries, a retry sees the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.schemas.avro import AvroType, parse_avro
from tidegate.schemas.protobuf import ProtoSchema, proto_from_json, proto_to_json

if TYPE_CHECKING:
    from tidegate.schemas.json_schema import JsonSchema


@dataclass(frozen=True)
class PinnedSchema:
    """Of Avro the schema's text, and the texts that it refers to, each after those that it needs itself. Of
    Protobuf what the compiler has made of a file and all that it imports: see `schemas.protobuf`. Of JSON
    Schema the text, and what it refers to, each as `["name", "text"]`.
    """

    text: str
    references: tuple[str, ...] = ()

    def avro(self) -> AvroType:
        """Raises SchemaFault."""
        return parse_avro(self.text, self.references)

    def protobuf(self) -> ProtoSchema:
        """As it was compiled."""
        return proto_from_json(self.text)

    def json_schema(self) -> JsonSchema:
        """Raises SchemaFault."""
        from tidegate.schemas.json_schema import parse_json_schema  # late: an extra

        return parse_json_schema(self.text, dict(map(json.loads, self.references)))


@dataclass(frozen=True)
class WriterSchema:
    """A version of a subject of a registry: `id` is what records written by it begin with."""

    subject: str
    version: int
    id: int
    schema: PinnedSchema


@dataclass(frozen=True)
class SourceSchemas:
    """Those of a source. `reader`: of the file beside the pipeline; None: the columns are the reader's.

    `writers`: of the registry, as it was when the batch was planned; None: records have no schema's id.
    """

    reader: PinnedSchema | None = None
    writers: tuple[WriterSchema, ...] | None = None

    def __bool__(self) -> bool:
        return self.reader is not None or self.writers is not None


def pin_avro(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """A schema of Avro. Raises SchemaFault for one that is none."""
    pinned = PinnedSchema(text, tuple(imports.values()))
    pinned.avro()
    return pinned


def pin_json_schema(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """A JSON Schema. Raises SchemaFault for one that is none, or refers to what is not there."""
    pinned = PinnedSchema(text, tuple(json.dumps([name, other]) for name, other in imports.items()))
    pinned.json_schema()
    return pinned


def pin_protobuf(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """A `.proto` file, compiled. Raises SchemaFault."""
    from tidegate.schemas.proto_files import proto_schema  # late: its compiler is an extra

    return PinnedSchema(proto_to_json(proto_schema(text, imports)))
