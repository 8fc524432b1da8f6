"""Protobuf's schemas, as decoding needs them: messages, fields and enums with all defaults resolved.

They are plain values that a plan stores as JSON, so that workers and retries need no compiler of `.proto`
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tidegate.schemas.faults import SchemaFault


@dataclass(frozen=True)
class ProtoField:
    """A field of a message.

    Args:
        kind: Protobuf's own word, such as `sint64`, `enum` or `message`.
        type: The full name of the field's enum or message.
        presence: `implicit` if a field that is missing equals its default, otherwise `explicit` or
            `required`.
        oneof: The name of the oneof that contains the field.
    """

    name: str
    number: int
    kind: str
    type: str = ""
    is_repeated: bool = False
    presence: str = "implicit"
    oneof: str = ""


@dataclass(frozen=True)
class ProtoMessage:
    """A message type.

    Args:
        messages: The full names of the messages that are declared inside of it, in the file's order.
        is_entry: Whether protoc made it for a map field, with the fields `key` and `value`.
    """

    fields: tuple[ProtoField, ...]
    messages: tuple[str, ...] = ()
    is_entry: bool = False


@dataclass(frozen=True)
class ProtoEnum:
    """An enum.

    Args:
        names: (number, name) in the file's order. The first is the default; the first name of a number
            counts.
        is_closed: Whether a number without a name is ignored, as in proto2.
    """

    names: tuple[tuple[int, str], ...]
    is_closed: bool = False


@dataclass(frozen=True)
class ProtoSchema:
    """One `.proto` file with all that it refers to.

    Args:
        top: The full names of the file's own top-level messages, in the file's order.
        messages: Full name -> message, also of imported files and nested messages.
        enums: Full name -> enum.
    """

    top: tuple[str, ...]
    messages: Mapping[str, ProtoMessage]
    enums: Mapping[str, ProtoEnum]

    def message(self, name: str) -> ProtoMessage:
        """Return the message of a full name. Raises SchemaFault if the file has no such message."""
        if name not in self.messages:
            raise SchemaFault(f"there is no message `{name}`: the file has {', '.join(self.top) or 'none'}")
        return self.messages[name]

    def at(self, indexes: tuple[int, ...]) -> str | None:
        """Return the full name of the message at Confluent's message indexes; None if there is none.

        Example: `(1, 0)` is the first message inside of the file's second message.
        """
        names, name = self.top, None
        for index in indexes:
            if not 0 <= index < len(names):
                return None
            name = names[index]
            # Map entries do not count: the compiler adds them, and the indexes are those of the `.proto`
            # text.
            names = tuple(
                inner for inner in self.messages[name].messages if not self.messages[inner].is_entry
            )
        return name

    def path(self, name: str) -> tuple[int, ...]:
        """Return Confluent's message indexes of a full name: the inverse of `at`.

        Raises SchemaFault if the file has no such message.
        """
        self.message(name)
        indexes: list[int] = []
        while name not in self.top:
            parent = next(outer for outer, message in self.messages.items() if name in message.messages)
            siblings = [
                inner for inner in self.messages[parent].messages if not self.messages[inner].is_entry
            ]
            indexes.insert(0, siblings.index(name))
            name = parent
        return (self.top.index(name), *indexes)


_DECODER = msgspec.json.Decoder(ProtoSchema)


def proto_to_json(schema: ProtoSchema) -> str:
    """Return the schema as the JSON text that a plan stores."""
    return msgspec.json.encode(schema).decode()


def proto_from_json(text: str) -> ProtoSchema:
    """Decode the JSON text that `proto_to_json` returns."""
    return _DECODER.decode(text)
