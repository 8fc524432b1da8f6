"""What a sink sends as keys and values of messages: the format, and the schema that a plan fixes.

It travels to workers, which import no grammar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

SinkFormat = Literal["json", "debezium", "avro", "protobuf"]
KeyFormat = Literal["text", "json", "avro", "protobuf"]


@dataclass(frozen=True)
class SinkSchema:
    """The schema of a sink's messages: its text, and the id that a plan fixes, which they begin with. None:
    there is no registry, and messages are the values' bytes alone.

    Where a file has it: `imports`, name and text of what it refers to; of Protobuf `compiled`, what the
    compiler has made of it (see `schemas.protobuf`), and the full name of the `message` that values are.
    """

    id: int | None
    text: str
    imports: tuple[tuple[str, str], ...] = ()
    compiled: str = ""
    message: str = ""


@dataclass(frozen=True)
class Payload:
    """The values of a sink's messages, or their keys. `owner`: the sink, where they have its own schema.

    `enveloped`: they tell what was before, too, as those in `debezium` always do.
    """

    format: SinkFormat | KeyFormat = "json"
    with_key: bool = False
    owner: str = ""
    schema: SinkSchema | None = None
    enveloped: bool = False
    is_key: bool = False

    @property
    def column(self) -> str:
        """The outbox's column that has them."""
        name = "message_key" if self.is_key else "payload"
        if self.is_key or self.format != "json":
            name += f"_{self.format}"
        if self.owner:
            name += f"_{crc32(self.owner.encode()):08x}"
        return f"{name}_with_key" if self.with_key else name
