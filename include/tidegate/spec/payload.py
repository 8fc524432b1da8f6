"""Where the schema of a sink's messages is, and who puts it there."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool

from tidegate.formats.payload import SinkFormat
from tidegate.spec import names
from tidegate.spec.scope import Model

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
