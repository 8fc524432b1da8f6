"""The keys and values of a sink's messages: their format, and the schema that a plan fixes.

Workers get these objects, and import no grammar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

SinkFormat = Literal["json", "debezium", "avro", "protobuf"]
KeyFormat = Literal["text", "json", "avro", "protobuf"]


@dataclass(frozen=True)
class SinkSchema:
    """The schema of a sink's messages.

    Args:
        id: The id in the registry, which the plan fixes and each message begins with; None without a
            registry.
        imports: (name, text) of each schema file that the text refers to.
        compiled: The compiled schema of a Protobuf file; see `schemas.protobuf`.
        message: The full name of the Protobuf message that values are.
    """

    id: int | None
    text: str
    imports: tuple[tuple[str, str], ...] = ()
    compiled: str = ""
    message: str = ""


@dataclass(frozen=True)
class Payload:
    """The values of a sink's messages, or their keys.

    Args:
        with_key: Whether the values contain the key's columns.
        owner: The sink, if its messages have their own schema.
        enveloped: Whether the values contain the value before, as those in `debezium` always do.
    """

    format: SinkFormat | KeyFormat = "json"
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
