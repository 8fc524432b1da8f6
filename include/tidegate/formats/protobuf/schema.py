"""Protobuf's schemas: `.proto` and `.desc` files → `ProtoSchema`, and the columns of its messages.

A `ProtoSchema` is a plain value with all defaults resolved. A plan stores it as JSON, so that workers and
retries need no compiler of `.proto` files (the extra `formats`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa

from tidegate.formats.schemas import PinnedSchema, SchemaFault, schema_bytes, schema_text

_SCALARS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), pa.int64()),
    # Spark has no unsigned types: 32 bits fit into a bigint, 64 bits need 20 digits.
    **dict.fromkeys(("uint64", "fixed64"), pa.decimal128(20, 0)),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Protobuf's wrapper messages, with the one field `value`: each becomes a nullable column of that field's
type.
"""
_TIMEOUT_S = 60
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_IMPORT = re.compile(r'(?:^|;)\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;', re.MULTILINE)
_ROOT = "the_schema.proto"
_KINDS = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group"),
    *("message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""Protobuf's words for the kinds of fields, by their numbers in `FieldDescriptorProto.Type`."""


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


def pin_protobuf(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """Compile a `.proto` file and pin the result. `imports` maps file names, as imported, to texts.

    Raises SchemaFault if the file does not compile.
    """
    return PinnedSchema(proto_to_json(proto_schema(text, imports)))


def pinned_protobuf(schema: PinnedSchema) -> ProtoSchema:
    """Decode the compiled schema of Protobuf; no compiler is needed."""
    return proto_from_json(schema.text)


def proto_columns(schema: ProtoSchema, message: str) -> pa.Schema:
    """Return a column for each field of the message with the full name `message`.

    Raises SchemaFault if there is no such message, if it or a nested one has no fields, or if a field is a
    group or contains itself.
    """
    fields = schema.message(message).fields
    if not fields:
        raise SchemaFault(f"the message `{message}` has no fields")
    parents = (message,)
    return pa.schema([(field.name, _field_type(schema, field, parents, field.name)) for field in fields])


def _field_type(schema: ProtoSchema, field: ProtoField, parents: tuple[str, ...], path: str) -> pa.DataType:
    if field.kind == "message" and schema.messages[field.type].is_entry:
        value = schema.messages[field.type].fields[1]
        return pa.map_(pa.string(), _value_type(schema, value, parents, f"{path}[...]"))
    if field.is_repeated:
        return pa.list_(_value_type(schema, field, parents, f"{path}[...]"))
    return _value_type(schema, field, parents, path)


def _value_type(schema: ProtoSchema, field: ProtoField, parents: tuple[str, ...], path: str) -> pa.DataType:
    if field.kind == "group":
        raise SchemaFault(f"`{path}` is a group")
    if field.kind != "message":
        return _SCALARS[field.kind]
    if field.type == TIMESTAMP:
        return pa.timestamp("us", "UTC")
    fields = schema.messages[field.type].fields
    if field.type in WRAPPERS:
        return _SCALARS[fields[0].kind]
    if field.type in parents:
        raise SchemaFault(f"`{path}` has itself inside of it, without an end")
    if not fields:
        raise SchemaFault(f"`{path}` is a message without fields")
    # only the messages around this one: a message may be used in two places
    inner = (*parents, field.type)
    return pa.struct(
        [(field.name, _field_type(schema, field, inner, f"{path}.{field.name}")) for field in fields]
    )


def proto_schema(text: str, imports: Mapping[str, str] | None = None) -> ProtoSchema:
    """Compile the text of a `.proto` file. `imports`: name, as imported -> text.

    Raises SchemaFault if the file does not compile, with up to three messages of the compiler.
    """
    return _compiled(text, tuple(sorted((imports or {}).items())))


# each miss starts a process, protoc
@lru_cache(maxsize=64)
def _compiled(text: str, imports: tuple[tuple[str, str], ...]) -> ProtoSchema:
    with tempfile.TemporaryDirectory() as folder:
        for name, imported in imports:
            if not _is_below(name):
                raise SchemaFault(f"`{name}` is not the name of a file that can be imported")
            path = Path(folder, "in", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(imported)
        root = Path(folder, "in", _ROOT)
        root.parent.mkdir(parents=True, exist_ok=True)
        root.write_text(text)
        return descriptor_schema(_protoc(Path(folder)), _ROOT)


def _is_below(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and name != _ROOT


def _protoc(folder: Path) -> bytes:
    """Compile the files of a folder to a serialized FileDescriptorSet. Raises SchemaFault if protoc fails."""
    import grpc_tools  # late: an extra, which only pipelines with `.proto` files need

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    out = folder / "out.desc"
    options = [f"-I{folder / 'in'}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={out}"]
    # A process of its own, so that its messages can be captured and a timeout ends it.
    command = [sys.executable, "-m", "grpc_tools.protoc", *options, _ROOT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if ": warning:" not in line]
        raise SchemaFault("; ".join(_shown(line, folder) for line in lines[:3]) or "protoc failed")
    return out.read_bytes()


def _shown(line: str, folder: Path) -> str:
    """Return a message of the compiler without the temporary folder.

    Messages on the schema itself begin with `line 3:5: …`, those on an import with `other.proto:3:5: …`.
    """
    return line.replace(f"{folder / 'in'}/", "").replace(f"{_ROOT}:", "line ")


def descriptor_schema(data: bytes, root: str | None = None) -> ProtoSchema:
    """Return the schema of a serialized FileDescriptorSet.

    Args:
        data: The content of a `.desc` file.
        root: The file whose messages are on top. None takes the last file, as protoc writes imports first.

    Raises SchemaFault if `data` is not a descriptor set, or lacks a file that it imports.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool  # late: an extra
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
        for file in files:
            pool.Add(file)
        if not files:
            raise SchemaFault("there is no file in the descriptor set")
        top = next(file for file in files if file.name == root) if root else files[-1]
        # full names: a file without a package has messages without a prefix
        names = tuple(".".join(filter(None, (top.package, message.name))) for message in top.message_type)
        return _schema(names, [pool.FindFileByName(file.name) for file in files])
    except (DecodeError, TypeError, KeyError, ValueError) as error:
        raise SchemaFault(f"it is not a descriptor set that can be used: {error}") from None


def _schema(top: tuple[str, ...], files: Iterable[Any]) -> ProtoSchema:
    messages: dict[str, ProtoMessage] = {}
    enums: dict[str, ProtoEnum] = {}

    def add(message: Any) -> None:
        fields = tuple(_field(field) for field in sorted(message.fields, key=lambda field: field.number))
        inner = tuple(nested.full_name for nested in message.nested_types)
        messages[message.full_name] = ProtoMessage(fields, inner, message.GetOptions().map_entry)
        for nested in message.nested_types:
            add(nested)
        for enum in message.enum_types:
            enums[enum.full_name] = _enum(enum)

    for file in files:
        for message in file.message_types_by_name.values():
            add(message)
        for enum in file.enum_types_by_name.values():
            enums[enum.full_name] = _enum(enum)
    return ProtoSchema(top, messages, enums)


def _field(field: Any) -> ProtoField:
    type_ = field.message_type or field.enum_type
    presence = "required" if field.is_required else "explicit" if field.has_presence else "implicit"
    # protoc makes a oneof of one member of each `optional` field of proto3; that one is not the user's.
    oneof = field.containing_oneof
    return ProtoField(
        field.name,
        field.number,
        _KINDS[field.type],
        type_.full_name if type_ is not None else "",
        field.is_repeated,
        presence,
        oneof.name if oneof is not None and len(oneof.fields) > 1 else "",
    )


def _enum(enum: Any) -> ProtoEnum:
    return ProtoEnum(tuple((value.number, value.name) for value in enum.values), enum.is_closed)


def read_protobuf(path: Path) -> PinnedSchema:
    """Read and compile a `.proto` file with its imports, or read a `.desc` file. Raises SchemaFault."""
    if path.suffix == ".desc":
        return PinnedSchema(proto_to_json(descriptor_schema(schema_bytes(path))))
    text = schema_text(path)
    return pin_protobuf(text, dict(imported_texts(path.parent, text)))


def imported_texts(folder: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files that a `.proto` file imports from its folder, also indirectly.

    A file comes after the files that it imports. Raises SchemaFault if one cannot be read.

    Args:
        folder: The folder from which imports are found.
        text: The text of the importing file.
    """
    return _imports(folder, text, set())


def _imports(folder: Path, text: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    for name in _IMPORT.findall(text):
        # other imports, such as `google/protobuf/timestamp.proto`, come with the compiler
        if name not in seen and _PATH.fullmatch(name) and (folder / name).is_file():
            # before the recursion: files that import each other would otherwise never end
            seen.add(name)
            imported = schema_text(folder / name)
            yield from _imports(folder, imported, seen)
            yield name, imported
