"""Schemas of records: as files and registries have them, as a plan stores them, and those of messages."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from zlib import crc32

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""The language of a schema's text, as registries call it."""
WIRE_PREFIX = struct.Struct(">bI")
"""The first bytes of a record in Confluent's wire format: a zero, and the schema's id in a registry."""

_MOST_BYTES = 1_000_000
"""The allowed size of a schema file."""


class SchemaFault(Exception):
    """A text is not a schema, a schema has no columns, or two schemas do not fit together.

    The message is a half sentence that says why ("the type `Stock` is not defined"); callers add to it which
    file, field or subject is concerned.
    """


class Unwritable(Exception):
    """A format cannot express a column's name, type or value. The text says which and why."""


@dataclass(frozen=True)
class RecordSchema:
    """A schema's text, as files and registries store it.

    Args:
        imports: name -> text of all schemas that it refers to, directly or not. The name is the full name of
            an Avro type, or the path of a Protobuf import. Later texts can refer to earlier ones.
    """

    kind: SchemaKind
    text: str
    imports: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PinnedSchema:
    """A schema with all that it refers to, as a plan stores it.

    A retry gets the same schema, even if its file or registry has changed.

    Args:
        text: The schema's text for Avro and JSON Schema. For Protobuf the compiled file and its imports as
            JSON: see `protobuf.schema`.
        references: For Avro the texts that the schema refers to, in order of dependency. For JSON Schema the
            same, each as `["name", "text"]`. Empty for Protobuf.
    """

    text: str
    references: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class SinkSchema:
    """The schema of a sink's messages.

    Args:
        id: The id in the registry, which the plan fixes and each message begins with; None without a
            registry.
        imports: (name, text) of each schema file that the text refers to.
        compiled: The compiled schema of a Protobuf file; see `protobuf.schema`.
        message: The full name of the Protobuf message that values are.
        registry: The URL of the registry with the id.
    """

    id: int | None
    text: str
    imports: tuple[tuple[str, str], ...] = ()
    compiled: str = ""
    message: str = ""
    registry: str = ""


@dataclass(frozen=True)
class Payload:
    """The values of a sink's messages, or their keys.

    Args:
        with_key: Whether the values contain the key's columns.
        owner: The sink, if its messages have their own schema.
        enveloped: Whether the values contain the value before, as those in `debezium` always do.
    """

    format: str = "json"
    with_key: bool = False
    owner: str = ""
    schema: SinkSchema | None = None
    enveloped: bool = False
    is_key: bool = False

    @property
    def column(self) -> str:
        """The outbox's column with these values."""
        name = "message_key" if self.is_key else "payload"
        if self.is_key or self.format != "json":
            name += f"_{self.format}"
        if self.owner:
            name += f"_{crc32(self.owner.encode()):08x}"
        return f"{name}_with_key" if self.with_key else name


def id_prefix(schema: SinkSchema) -> bytes:
    """Return the first bytes of messages of a schema: none if it has no id."""
    return b"" if schema.id is None else WIRE_PREFIX.pack(0, schema.id)


def schema_text(path: Path) -> str:
    """Return the text of a schema file.

    Raises SchemaFault if it cannot be read, is too large or not UTF-8.
    """
    try:
        return schema_bytes(path).decode()
    except UnicodeDecodeError:
        raise SchemaFault("it is not UTF-8") from None


def schema_bytes(path: Path) -> bytes:
    """Return the content of a schema file. Raises SchemaFault if it cannot be read, or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)  # one byte more shows that the file is too large
    except OSError as error:
        raise SchemaFault(f"it cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise SchemaFault(f"it has more than {_MOST_BYTES} bytes")
    return data
