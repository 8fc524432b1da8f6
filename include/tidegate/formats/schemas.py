"""A schema of records, as files and registries store it: its text, and the texts that it refers to by
name.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""The language of a schema's text, as registries call it."""

WIRE_PREFIX = struct.Struct(">bI")
"""The first bytes of a record in Confluent's wire format: a zero, and the schema's id in a registry."""


class Unwritable(Exception):
    """A format cannot express a column's name, type or value. The text says which and why."""


@dataclass(frozen=True)
class RecordSchema:
    """A schema's text.

    Args:
        imports: name -> text of all schemas that it refers to, directly or not. The name is the full name of
            an Avro type, or the path of a Protobuf import. Later texts can refer to earlier ones.
    """

    kind: SchemaKind
    text: str
    imports: Mapping[str, str] = field(default_factory=dict)
