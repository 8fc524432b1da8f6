"""Avro's schemas: JSON → `AvroType`, as version 1.12 of the specification has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.schemas.faults import SchemaFault

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("record", "enum", "fixed")
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
"""Logical type -> what it can stand on. Any other is passed over, as the specification says."""

NO_DEFAULT = object()
"""A field without a default: JSON's null is one."""


@dataclass(eq=False)
class AvroField:
    """A field of a record, in the writer's order. `default` is JSON, or NO_DEFAULT."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(eq=False)
class AvroType:
    """A type. What a kind does not have is empty. Types that refer to themselves are loops of these.

    `name` is full, with the namespace. `logical` is one of those that are known, on a type that it can stand
    on. `types`: of a union its branches; of an array or map the one of its items.
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
        """What an array or a map is of."""
        return self.types[0]

    @property
    def text(self) -> str:
        """How it is called in a sentence: `long`, `timestamp-millis`, `shop.Stock`, `["null","long"]`."""
        if self.kind == "union":
            return json.dumps([branch.text for branch in self.types], separators=(",", ":"))
        return self.name or self.logical or self.kind


def parse_avro(text: str, references: Iterable[str] = ()) -> AvroType:
    """The type of a schema's text; `references` are those whose names it uses, each after those that it uses
    itself. Raises SchemaFault.
    """
    names: dict[str, AvroType] = {}
    for reference in references:
        _parsed(reference, names)
    return _parsed(text, names)


def _parsed(text: str, names: dict[str, AvroType]) -> AvroType:
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
    """`names`: full name -> the type that has it, for all that was read so far."""

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
            return self.type(kind, namespace)  # {"type": {"type": …}}
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
        """A primitive type, or one that was defined before."""
        if name in PRIMITIVES:
            return AvroType(name)
        known = self.names.get(name) if "." in name else self.names.get(_full(name, namespace))
        known = known or self.names.get(name)
        if known is None:
            raise SchemaFault(f"the type `{name}` is not defined")
        return known

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
            type_ = _with_logical(type_, schema)  # written beside the type, as many producers do
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
        self.names[result.name] = logical
        return logical

    def define(self, kind: str, schema: Mapping[str, Any], namespace: str) -> tuple[AvroType, str]:
        """A type with a name, known from here on; and the namespace inside of it."""
        name = schema.get("name")
        if not isinstance(name, str) or not _FULL_NAME.fullmatch(name):
            raise SchemaFault(f"a type of kind {kind} has no name that can be used")
        full = _full(name, schema.get("namespace", namespace) or "")
        if full in self.names:
            raise SchemaFault(f"the type `{full}` is defined twice")
        inside = full.rpartition(".")[0]
        aliases = tuple(
            _full(alias, inside) for alias in schema.get("aliases") or () if isinstance(alias, str)
        )
        self.names[full] = AvroType(kind, full, aliases)
        return self.names[full], inside


def _with_logical(type_: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """The type as the logical one that is written on it; itself where that is unknown, or does not fit."""
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
    known = AvroType(type_.kind, type_.name, type_.aliases, size=type_.size, logical=logical)
    known.precision, known.scale = digits
    return known


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None
