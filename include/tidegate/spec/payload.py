"""Where the schemas of a sink's messages are, and who puts them there."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool

from tidegate.formats.payload import SinkFormat
from tidegate.spec import names
from tidegate.spec.scope import Model

BY_REGISTRY: tuple[SinkFormat, ...] = ("avro", "protobuf")
"""The formats that have schemas, whose ids in a registry messages name."""


class SinkRegistry(Model):
    """Where the schemas of a sink's messages are, and who puts them there."""

    connection: Annotated[str, AfterValidator(names.check_registry_connection)] | None = Field(
        default=None, description="The schema registry, by its name. Null: TIDEGATE_REGISTRY."
    )
    subject: Annotated[str, AfterValidator(names.check_subject)] | None = Field(
        default=None, description="The subject that has the schema's versions. Null: the topic, and `-value`."
    )
    key_subject: Annotated[str, AfterValidator(names.check_subject)] | None = Field(
        default=None, description="The same for keys. Null: the topic, and `-key`."
    )
    may_register: StrictBool = Field(
        alias="register",
        default=True,
        description="Whether the schema is registered where it is not. `false`: it has to be there.",
    )
