"""Protobuf's schemas, as decoding needs them: messages, fields and enums with all defaults resolved.

Plain values, which JSON can hold: a plan keeps them, so that no compiler of `.proto` files is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tidegate.schemas.faults import SchemaFault


@dataclass(frozen=True)
class ProtoField:
    """`kind`: Protobuf's own word, such as `sint64`, `enum` or `message`; `type`: the full name of those two.

    `presence`: whether a field that is not there differs from its default: `implicit` (it does not),
    `explicit`, `required`. `oneof`: the one that it is a member of.
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
    """`messages`: the full names of those that are declared in it, in order. `is_entry`: of a map."""

    fields: tuple[ProtoField, ...]
    messages: tuple[str, ...] = ()
    is_entry: bool = False


@dataclass(frozen=True)
class ProtoEnum:
    """`names`: (number, name), in the order of the file: the first is the default, and of two names for a
    number the first counts. `is_closed`: a number without a name is as if it were not there.
    """

    names: tuple[tuple[int, str], ...]
    is_closed: bool = False


@dataclass(frozen=True)
class ProtoSchema:
    """One `.proto` file, and all that it refers to: full name -> message, enum. `top`: the full names of the
    file's own messages, in order.
    """

    top: tuple[str, ...]
    messages: Mapping[str, ProtoMessage]
    enums: Mapping[str, ProtoEnum]

    def message(self, name: str) -> ProtoMessage:
        """The message of a full name. Raises SchemaFault."""
        if name not in self.messages:
            raise SchemaFault(f"there is no message `{name}`: the file has {', '.join(self.top) or 'none'}")
        return self.messages[name]

    def at(self, indexes: tuple[int, ...]) -> str | None:
        """The full name of the message that Confluent's indexes lead to; None: there is none."""
        names, name = self.top, None
        for index in indexes:
            if not 0 <= index < len(names):
                return None
            name = names[index]
            names = tuple(
                inner for inner in self.messages[name].messages if not self.messages[inner].is_entry
            )
        return name

    def path(self, name: str) -> tuple[int, ...]:
        """The indexes that lead to the message of a full name: the inverse of `at`. Raises SchemaFault."""
        self.message(name)
        indexes: list[int] = []
        while name not in self.top:
            around = next(outer for outer, message in self.messages.items() if name in message.messages)
            inner = [n for n in self.messages[around].messages if not self.messages[n].is_entry]
            indexes.insert(0, inner.index(name))
            name = around
        return (self.top.index(name), *indexes)


_DECODER = msgspec.json.Decoder(ProtoSchema)


def proto_to_json(schema: ProtoSchema) -> str:
    """As a plan keeps it."""
    return msgspec.json.encode(schema).decode()


def proto_from_json(text: str) -> ProtoSchema:
    """The inverse of `proto_to_json`."""
    return _DECODER.decode(text)
