"""`registry` of a Kafka sink: the schema registry of its messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool

from tidegate.formats.payload import SinkFormat
from tidegate.spec import names
from tidegate.spec.scope import Model

BY_REGISTRY: tuple[SinkFormat, ...] = ("avro", "protobuf")
"""The formats whose messages begin with the id of a schema in a registry."""


class SinkRegistry(Model):
    """The schema registry of a sink's messages, the subjects, and whether tidegate registers
    schemas there.
    """

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
        description="Whether a missing schema is registered. `false`: it must exist.",
    )
