"""Avro's schemas: JSON → `AvroType`, by version 1.12 of Avro's specification, and the columns of a type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidegate.formats.schemas import PinnedSchema, SchemaFault

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_LOGICAL = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
}
"""Logical type -> the kinds that it can annotate. Avro's specification says to ignore any other logical type,
and to read the annotated type itself.
"""
NO_DEFAULT = object()
"""Marks a field without a default. None would not do: JSON's null is a valid default."""
_SCALARS = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_ARROW_OF_LOGICAL = {
    "uuid": pa.string(),
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
"""`time-millis` and `time-micros` are missing: Spark has no type for a time of day, so their numbers stay
numbers.
"""
_MAX_DIGITS = 38  # of Spark's decimals, and of Arrow's decimal128


@dataclass(eq=False)
class AvroField:
    """A field of a record, in the writer's order. `default` is JSON, or NO_DEFAULT."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class AvroType:
    """A type of Avro. Attributes that a kind does not have are empty.

    Args:
        name: The full name of a record, enum or fixed, with its namespace.
        types: The branches of a union; the single type of the items of an array, or of the values of a map.
        logical: A logical type of `_LOGICAL` on a kind that it can annotate, otherwise None.

    A type that refers to itself is a cycle of objects, so types are compared by identity (`eq=False`).
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    types: tuple[AvroType, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0

    @property
    def items(self) -> AvroType:
        """The type of an array's items, or of a map's values."""
        return self.types[0]

    @property
    def text(self) -> str:
        """The type as messages show it.

        Example: `long`, `timestamp-millis`, `shop.Stock`, `["null","long"]`.
        """
        if self.kind == "union":
            return json.dumps([branch.text for branch in self.types], separators=(",", ":"))
        return self.name or self.logical or self.kind


def parse_avro(text: str, references: Iterable[str] = ()) -> AvroType:
    """Return the type of a schema's text.

    Args:
        text: The schema, as JSON.
        references: The texts of the schemas whose names `text` uses, in order of dependency: a schema comes
            after the schemas that it uses.

    Raises SchemaFault if a text is not JSON, or not a schema of Avro.

    Example: `parse_avro('{"type": "array", "items": "shop.Stock"}', [stock_schema])`
    """
    names: dict[str, AvroType] = {}
    for reference in references:
        _parse(reference, names)
    return _parse(text, names)


def pin_avro(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """Pin a schema of Avro. `imports` maps names to the schemas it uses, in order of dependency.

    Raises SchemaFault if it is not a schema of Avro.
    """
    references = tuple(imports.values())
    parse_avro(text, references)
    return PinnedSchema(text, references)


def pinned_avro(schema: PinnedSchema) -> AvroType:
    """Return the type of a pinned schema. Raises SchemaFault if it is not one of Avro."""
    return parse_avro(schema.text, schema.references)


def _parse(text: str, names: dict[str, AvroType]) -> AvroType:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaFault(f"the schema is not JSON: {error}") from None
    try:
        return _Parser(names).type(schema, "")
    except RecursionError:
        raise SchemaFault("the schema is nested too deep") from None


@dataclass
class _Parser:
    """Turns decoded JSON into types.

    `names` maps the full name of each type that was defined so far to the type.
    """

    names: dict[str, AvroType] = field(default_factory=dict)

    def type(self, schema: Any, namespace: str) -> AvroType:
        if isinstance(schema, str):
            return self.named(schema, namespace)
        if isinstance(schema, list):
            return self.union(schema, namespace)
        if not isinstance(schema, dict):
            raise SchemaFault(f"{json.dumps(schema)[:60]} is not a type of Avro")
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.type(kind, namespace)  # {"type": {"type": …}}: some producers nest the type
        if kind in ("record", "error"):
            return self.record(schema, namespace)
        if kind == "enum":
            return self.enum(schema, namespace)
        if kind == "fixed":
            return self.fixed(schema, namespace)
        if kind in ("array", "map"):
            items = schema.get("items" if kind == "array" else "values")
            return AvroType(kind, types=(self.type(items, namespace),))
        return _with_logical(self.named(kind, namespace), schema)

    def named(self, name: str, namespace: str) -> AvroType:
        """Return a primitive type, or a type that was defined before. Raises SchemaFault if there is none."""
        if name in PRIMITIVES:
            return AvroType(name)
        # A name without a dot is looked up in the enclosing namespace first, then as a full name by itself.
        defined = self.names.get(_full(name, namespace)) or self.names.get(name)
        if defined is None:
            raise SchemaFault(f"the type `{name}` is not defined")
        return defined

    def union(self, schema: list[Any], namespace: str) -> AvroType:
        branches = tuple(self.type(branch, namespace) for branch in schema)
        kinds = [branch.name or branch.kind for branch in branches]
        if any(branch.kind == "union" for branch in branches) or len(set(kinds)) < len(kinds):
            raise SchemaFault(f"the union of {', '.join(kinds)} has one of them twice, or another union")
        return AvroType("union", types=branches)

    def record(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        result, namespace = self.define("record", schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise SchemaFault(f"the record `{result.name}` has no fields")
        result.fields = tuple(self.field(written, namespace, result.name) for written in fields)
        names = [field.name for field in result.fields]
        if len(set(names)) < len(names):
            raise SchemaFault(f"the record `{result.name}` has a field twice")
        return result

    def field(self, schema: Any, namespace: str, record: str) -> AvroField:
        if not isinstance(schema, dict) or not _is_name(schema.get("name")) or "type" not in schema:
            raise SchemaFault(f"a field of `{record}` has no name, or no type")
        type_ = self.type(schema["type"], namespace)
        if isinstance(schema["type"], str):
            # The specification puts `logicalType` inside of the type, but many producers write it beside the
            # type.
            type_ = _with_logical(type_, schema)
        aliases = tuple(alias for alias in schema.get("aliases") or () if isinstance(alias, str))
        return AvroField(schema["name"], type_, schema.get("default", NO_DEFAULT), aliases)

    def enum(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        result, _ = self.define("enum", schema, namespace)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(map(_is_name, symbols)):
            raise SchemaFault(f"the enum `{result.name}` has no symbols, or one that is not a name")
        if len(set(symbols)) < len(symbols):
            raise SchemaFault(f"the enum `{result.name}` has a symbol twice")
        result.symbols, result.default_symbol = tuple(symbols), schema.get("default")
        return result

    def fixed(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        result, _ = self.define("fixed", schema, namespace)
        size = schema.get("size")
        if type(size) is not int or not 1 <= size < 2**31:
            raise SchemaFault(f"the size of `{result.name}` is not a number of bytes")
        result.size = size
        logical = _with_logical(result, schema)
        # `define` has registered the type without its logical type
        self.names[result.name] = logical
        return logical

    def define(self, kind: str, schema: Mapping[str, Any], namespace: str) -> tuple[AvroType, str]:
        """Define a named type. Returns the type, still empty, and the namespace that holds inside of it.

        The name is registered before the fields are read, so that a record can refer to itself. Raises
        SchemaFault if the name is missing, is no name, or is taken.
        """
        name = schema.get("name")
        if not isinstance(name, str) or not _FULL_NAME.fullmatch(name):
            raise SchemaFault(f"a type of kind {kind} has no name that can be used")
        full = _full(name, schema.get("namespace", namespace) or "")
        if full in self.names:
            raise SchemaFault(f"the type `{full}` is defined twice")
        inner_namespace = full.rpartition(".")[0]
        aliases = tuple(
            _full(alias, inner_namespace) for alias in schema.get("aliases") or () if isinstance(alias, str)
        )
        self.names[full] = AvroType(kind, full, aliases)
        return self.names[full], inner_namespace


def _with_logical(type_: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """Return the type with the logical type of `schema`; unchanged if that is unknown, or invalid for the
    type.

    The specification says to ignore an invalid logical type, not to refuse the schema.
    """
    logical = schema.get("logicalType")
    if not isinstance(logical, str) or type_.kind not in _LOGICAL.get(logical, ()):
        return type_
    digits: tuple[Any, Any] = (0, 0)
    if logical == "decimal":
        digits = schema.get("precision"), schema.get("scale", 0)
        if not all(type(number) is int for number in digits) or not 0 <= digits[1] <= digits[0] != 0:
            return type_
    if logical == "uuid" and type_.kind == "fixed" and type_.size != 16:
        return type_
    annotated = AvroType(type_.kind, type_.name, type_.aliases, size=type_.size, logical=logical)
    annotated.precision, annotated.scale = digits
    return annotated


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def avro_columns(schema: AvroType) -> pa.Schema:
    """Return a column for each field of a record. Raises SchemaFault if `schema` is not a record, or if a
    field cannot be a column: it is only null, a union of several types, an empty record, or contains itself.
    """
    if schema.kind != "record":
        raise SchemaFault(f"the schema is `{schema.text}`, and only a record has columns")
    return pa.schema(
        [pa.field(field.name, _arrow_type(field.type, (schema,), field.name)) for field in schema.fields]
    )


def arrow_type(type_: AvroType) -> pa.DataType:
    """Return the Arrow type of a type, which messages call "it". Raises SchemaFault if there is none."""
    return _arrow_type(type_, (), "it")


def _arrow_type(type_: AvroType, parents: tuple[AvroType, ...], path: str) -> pa.DataType:
    """Return the Arrow type. `parents` are the records around `type_`; `path` is its name in a message."""
    if type_ in parents:
        raise SchemaFault(f"`{path}` has itself inside of it, without an end")
    if type_.kind == "union":
        return _union(type_, parents, path)
    if type_.kind == "null":
        raise SchemaFault(f"`{path}` is null and nothing else")
    if type_.kind == "record":
        if not type_.fields:
            raise SchemaFault(f"`{path}` is a record without fields")
        inner = (*parents, type_)
        parts = [
            (field.name, _arrow_type(field.type, inner, f"{path}.{field.name}")) for field in type_.fields
        ]
        return pa.struct([pa.field(name, part) for name, part in parts])
    if type_.kind == "array":
        return pa.list_(_arrow_type(type_.items, parents, f"{path}[...]"))
    if type_.kind == "map":
        return pa.map_(pa.string(), _arrow_type(type_.items, parents, f"{path}[...]"))
    # A decimal with more digits than Spark has stays the bytes that it is in Avro.
    if type_.logical == "decimal" and type_.precision <= _MAX_DIGITS:
        return pa.decimal128(type_.precision, type_.scale)
    return _ARROW_OF_LOGICAL.get(type_.logical or "", _SCALARS[type_.kind])


def _union(type_: AvroType, parents: tuple[AvroType, ...], path: str) -> pa.DataType:
    parts = [_arrow_type(branch, parents, path) for branch in type_.types if branch.kind != "null"]
    if not parts or any(part != parts[0] for part in parts):
        raise SchemaFault(f"`{path}` is the union {type_.text}, which has no one type")
    return parts[0]
