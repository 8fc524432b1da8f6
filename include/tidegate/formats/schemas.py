"""A schema of records, as files and registries have it: its text, and what the text refers to by name."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]
"""What a schema's text is written in, as registries call it."""

WIRE_PREFIX = struct.Struct(">bI")
"""What Confluent's wire format has before a record's bytes: a zero, and the schema's id in a registry."""


class Unwritable(Exception):
    """A column's name, type or value has no form in a format; the text says which and why."""


@dataclass(frozen=True)
class RecordSchema:
    """A schema's text. `imports`: the texts that it refers to, also by way of others, by the names that they
    are referred to: of Avro a type's full name, of Protobuf an import's path. What comes later may refer to
    what comes before.
    """

    kind: SchemaKind
    text: str
    imports: Mapping[str, str] = field(default_factory=dict)
