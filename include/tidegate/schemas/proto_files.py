"""`.proto` and `.desc` files → `ProtoSchema`, by Protobuf's own compiler and library (the extra `formats`).

Only a process that reads a pipeline file, or plans a batch, needs them: workers get the compiled schema of
the plan.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.protobuf import ProtoEnum, ProtoField, ProtoMessage, ProtoSchema

_TIMEOUT_S = 60


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


_ROOT = "the_schema.proto"


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


_KINDS = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group"),
    *("message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""Protobuf's words for the kinds of fields, by their numbers in `FieldDescriptorProto.Type`."""


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
