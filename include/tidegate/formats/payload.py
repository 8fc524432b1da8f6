"""What a sink that sends messages sends as their values: the format, and the schema that a plan fixes.

It travels to workers, which import no grammar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

SinkFormat = Literal["json", "debezium", "avro", "protobuf"]


@dataclass(frozen=True)
class SinkSchema:
    """The schema of a sink's messages as a plan fixes it: the id that they bear, and the text."""

    id: int
    text: str


@dataclass(frozen=True)
class Payload:
    """The values of a sink's messages. `owner`: the sink, where they have its own schema."""

    format: SinkFormat = "json"
    with_key: bool = False
    owner: str = ""
    schema: SinkSchema | None = None

    @property
    def column(self) -> str:
        """The outbox's column that has them."""
        name = "payload" if self.format == "json" else f"payload_{self.format}"
        if self.owner:
            name += f"_{crc32(self.owner.encode()):08x}"
        return f"{name}_with_key" if self.with_key else name
