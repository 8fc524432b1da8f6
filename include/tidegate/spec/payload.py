"""What a sink that sends messages sends as their values: the format, and the schema that a plan fixes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from zlib import crc32

from pydantic import AfterValidator, Field, StrictBool

from tidegate.spec import names
from tidegate.spec.scope import Model

SinkFormat = Literal["json", "debezium", "avro", "protobuf"]

BY_REGISTRY: tuple[SinkFormat, ...] = ("avro", "protobuf")
"""The formats whose messages name a schema by its id in a registry."""


class SinkRegistry(Model):
    """Where the schema of a sink's messages is, and who puts it there."""

    connection: Annotated[str, AfterValidator(names.check_registry_connection)] | None = Field(
        default=None, description="The schema registry, by its name. Null: TIDEGATE_REGISTRY."
    )
    subject: Annotated[str, AfterValidator(names.check_subject)] | None = Field(
        default=None, description="The subject that has the schema's versions. Null: the topic, and `-value`."
    )
    may_register: StrictBool = Field(
        alias="register",
        default=True,
        description="Whether the schema is registered where it is not. `false`: it has to be there.",
    )


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
