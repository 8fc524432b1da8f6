"""Schemas as a plan stores them.

A retry gets the same schemas, even if their files or registry have changed.
"""

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
    """A schema with all that it refers to.

    Args:
        text: The schema's text for Avro and JSON Schema. For Protobuf the compiled file and its imports as
            JSON: see `schemas.protobuf`.
        references: For Avro the texts that the schema refers to, in order of dependency. For JSON Schema the
            same, each as `["name", "text"]`. Empty for Protobuf.
    """

    text: str
    references: tuple[str, ...] = ()

    def avro(self) -> AvroType:
        """Parse the schema as Avro. Raises SchemaFault if it is not one."""
        return parse_avro(self.text, self.references)

    def protobuf(self) -> ProtoSchema:
        """Decode the compiled schema of Protobuf; no compiler is needed."""
        return proto_from_json(self.text)

    def json_schema(self) -> JsonSchema:
        """Parse the schema as JSON Schema.

        Raises SchemaFault if it is not one, or if a reference leads nowhere.
        """
        from tidegate.schemas.json_schema import parse_json_schema  # late: `jsonschema` is an extra

        return parse_json_schema(self.text, dict(map(json.loads, self.references)))


@dataclass(frozen=True)
class WriterSchema:
    """A version of a subject of a schema registry.

    Records that it wrote begin with its `id` (Confluent's wire format).
    """

    subject: str
    version: int
    id: int
    schema: PinnedSchema


@dataclass(frozen=True)
class SourceSchemas:
    """The schemas of a source.

    Args:
        reader: The schema of the file beside the pipeline; None if the pipeline's columns are the reader's
            schema.
        writers: The versions that the registry had when the batch was planned; None if records have no schema
            id.
    """

    reader: PinnedSchema | None = None
    writers: tuple[WriterSchema, ...] | None = None

    def __bool__(self) -> bool:
        return self.reader is not None or self.writers is not None


def pin_avro(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """Pin a schema of Avro. `imports` maps names to the schemas it uses, in order of dependency.

    Raises SchemaFault if it is not a schema of Avro.
    """
    pinned = PinnedSchema(text, tuple(imports.values()))
    pinned.avro()
    return pinned


def pin_json_schema(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """Pin a JSON Schema. `imports` maps the names of its `$ref`s to texts.

    Raises SchemaFault if it is not a JSON Schema, or if a reference leads nowhere.
    """
    references = tuple(json.dumps([name, imported]) for name, imported in imports.items())
    pinned = PinnedSchema(text, references)
    pinned.json_schema()
    return pinned


def pin_protobuf(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """Compile a `.proto` file and pin the result. `imports` maps file names, as imported, to texts.

    Raises SchemaFault if the file does not compile.
    """
    from tidegate.schemas.proto_files import proto_schema  # late: its compiler is an extra

    return PinnedSchema(proto_to_json(proto_schema(text, imports)))
