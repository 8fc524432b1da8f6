"""Columns of a JSON Schema: the Arrow type of each property that a pipeline can store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidegate.schemas.faults import SchemaFault
from tidegate.schemas.json_schema import JsonSchema, Resolver

_SCALARS = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
_FORMATS = {"date": pa.date32(), "date-time": pa.timestamp("us", "UTC")}
_CHOICES = ("anyOf", "oneOf")


def json_schema_columns(schema: JsonSchema) -> pa.Schema:
    """Return a column for each property of the object that a schema describes.

    All columns are nullable: the schema itself checks what is `required`. An integer is a bigint, a number a
    double, a string of `format: date-time` a timestamp, a string in base64 is bytes.

    Raises SchemaFault if the schema does not describe an object with `properties`, or if a property has no
    type, several types, or contains itself.
    """
    type_ = _Reader(schema).type(schema.contents, schema.resolver, (), "$")
    if not pa.types.is_struct(type_):
        raise SchemaFault("the schema is not of an object with `properties`, and only those have columns")
    return pa.schema(list(type_))


class _Reader:
    def __init__(self, schema: JsonSchema) -> None:
        self._hides_siblings = schema.hides_siblings

    def type(self, part: Any, resolver: Resolver, parents: tuple[int, ...], path: str) -> pa.DataType:
        """Return the type of the values of a part of the schema.

        `parents`: the ids of the parts around it.
        """
        if id(part) in parents:
            raise SchemaFault(f"`{path}` has itself inside of it, without an end")
        if not isinstance(part, dict):
            raise SchemaFault(f"`{path}` can be anything")
        parents = (*parents, id(part))
        types = list(self._types(part, resolver, parents, path))
        if not types:
            raise SchemaFault(f"`{path}` has no `type`")
        if any(type_ != types[0] for type_ in types):
            raise SchemaFault(f"`{path}` can be of more than one type")
        return types[0]

    def _types(
        self, part: Mapping[str, Any], resolver: Resolver, parents: tuple[int, ...], path: str
    ) -> Iterator[pa.DataType]:
        """Yield the types that a part has by `$ref`, `anyOf`, `oneOf`, `type`, `const` or `enum`; null is
        left out.
        """
        if "$ref" in part:
            target = resolver.lookup(part["$ref"])
            yield self.type(target.contents, target.resolver, parents, path)
            if self._hides_siblings:
                return
        # null beside a type only makes it nullable, as all columns are
        for choice in (choice for keyword in _CHOICES for choice in part.get(keyword, ())):
            if not _is_null(choice):
                yield self.type(choice, resolver, parents, path)
        for name in _names(part):
            if name == "object":
                yield self._object(part, resolver, parents, path)
            elif name == "array":
                yield pa.list_(self._items(part, resolver, parents, path))
            else:
                yield _scalar(part, name)

    def _object(
        self, part: Mapping[str, Any], resolver: Resolver, parents: tuple[int, ...], path: str
    ) -> pa.DataType:
        properties, map_values = part.get("properties"), part.get("additionalProperties")
        if properties:
            types = {
                name: self.type(inner, resolver, parents, f"{path}.{name}")
                for name, inner in properties.items()
            }
            return pa.struct([pa.field(name, type_) for name, type_ in types.items()])
        if isinstance(map_values, dict):
            return pa.map_(pa.string(), self.type(map_values, resolver, parents, f"{path}[...]"))
        raise SchemaFault(f"`{path}` is an object without `properties`")

    def _items(
        self, part: Mapping[str, Any], resolver: Resolver, parents: tuple[int, ...], path: str
    ) -> pa.DataType:
        items = part.get("items")
        # a type per place: Arrow's lists have one type for all items
        if "prefixItems" in part or not isinstance(items, dict):
            raise SchemaFault(f"`{path}` is an array without one kind of `items`")
        return self.type(items, resolver, parents, f"{path}[...]")


def _names(part: Mapping[str, Any]) -> list[str]:
    """Return the names of a part's types without null. Without `type` they are those of `const` or `enum`."""
    names = part.get("type")
    if names is None:
        values = [part["const"]] if "const" in part else part.get("enum", [])
        names = sorted({_name_of(value) for value in values})
    names = [names] if isinstance(names, str) else names
    # JSON Schema counts an integer as a number, so `["integer", "number"]` is the one type number.
    return [name for name in names if name != "null" and not (name == "integer" and "number" in names)]


def _name_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    return kinds.get(type(value), "null")


def _is_null(choice: Any) -> bool:
    return isinstance(choice, dict) and not _names(choice) and ("type" in choice or "const" in choice)


def _scalar(part: Mapping[str, Any], name: str) -> pa.DataType:
    if name == "string" and part.get("contentEncoding") == "base64":
        return pa.binary()
    return _FORMATS.get(part.get("format", ""), _SCALARS[name]) if name == "string" else _SCALARS[name]
