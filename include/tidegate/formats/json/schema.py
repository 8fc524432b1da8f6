"""JSON Schema: parse a schema, check it and its references, and derive the columns of its properties.

The library `jsonschema` (an extra) checks the values. tidegate never fetches a schema: a reference is to the
document itself, or to a document that the caller gives by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from urllib.parse import urljoin

import pyarrow as pa
from jsonschema import Draft3Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaResource

from tidegate.formats.schemas import PinnedSchema, SchemaFault

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DRAFTS_WITHOUT_SIBLINGS = ("draft-04", "draft-06", "draft-07")
Resolver = Any
"""`referencing`'s resolver, by which a part of a schema looks up its references.

It is generic over dialects.
"""
_SCALARS = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
_FORMATS = {"date": pa.date32(), "date-time": pa.timestamp("us", "UTC")}
_CHOICES = ("anyOf", "oneOf")


@dataclass(frozen=True)
class JsonSchema:
    """A schema whose references all exist. `contents` is the document, `resolver` looks up its references."""

    contents: Any
    resolver: Resolver
    registry: Registry[Any]
    validator_class: type[Validator]

    @property
    def hides_siblings(self) -> bool:
        """Whether the schema's draft ignores the keywords beside a `$ref`: drafts 4, 6 and 7 do."""
        return any(draft in self.validator_class.META_SCHEMA["$schema"] for draft in _DRAFTS_WITHOUT_SIBLINGS)

    def validator(self) -> Validator:
        """Return the validator that checks values, with an exact `multipleOf` (see `is_multiple`)."""
        corrected: type[Validator] = extend(  # type: ignore[no-untyped-call]  # of the library
            self.validator_class, {"multipleOf": _multiple_of}
        )
        return corrected(self.contents, registry=self.registry)


def is_multiple(value: float, divisor: float) -> bool:
    """Return whether `value` is a multiple of `divisor`, by the digits that both are written with.

    The library divides doubles, which is wrong for decimal fractions: 19.99 / 0.01 is 1998.9999999999998.

    >>> is_multiple(19.99, 0.01)
    True
    """
    return _fraction(value) % _fraction(divisor) == 0


def _fraction(number: float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(number))


def _multiple_of(validator: Any, divisor: float, value: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "number") and not is_multiple(value, divisor):
        yield ValidationError(f"{value!r} is not a multiple of {divisor}")


def parse_json_schema(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a schema. A schema without `$schema` is of draft 2020-12.

    Args:
        text: The schema, as JSON.
        references: Name, as `$ref` uses it -> the text of that schema.

    Raises SchemaFault if a text is not a JSON Schema of the drafts 4 to 2020-12, or if a reference leads
    nowhere.
    """
    contents = _checked(text, "the schema")
    resource = _resource(contents)
    registry: Registry[Any] = Registry().with_resource("", resource)
    for name, other in references.items():
        named = _resource(_checked(other, f"`{name}`"))
        # A schema with an `$id` resolves relative references against it, so the name is also registered
        # joined.
        registry = registry.with_resources([(name, named), (urljoin(resource.id() or "", name), named)])
    resolver = registry.resolver_with_root(resource)
    try:
        _check_references(resource, resolver, set())
    except RecursionError:
        raise SchemaFault("the schema is nested too deep") from None
    return JsonSchema(contents, resolver, registry, _validator_class(contents))


def pin_json_schema(text: str, imports: Mapping[str, str]) -> PinnedSchema:
    """Pin a JSON Schema. `imports` maps the names of its `$ref`s to texts.

    Raises SchemaFault if it is not a JSON Schema, or if a reference leads nowhere.
    """
    parse_json_schema(text, imports)
    return PinnedSchema(text, tuple(json.dumps([name, imported]) for name, imported in imports.items()))


def pinned_json_schema(schema: PinnedSchema) -> JsonSchema:
    """Parse a pinned schema.

    Raises SchemaFault if it is not a JSON Schema, or if a reference leads nowhere.
    """
    return parse_json_schema(schema.text, dict(map(json.loads, schema.references)))


def _validator_class(contents: Any) -> type[Validator]:
    draft = contents.get("$schema") if isinstance(contents, dict) else None
    validator_class: type[Validator] = Draft202012Validator
    if draft is not None:  # an unknown draft is treated as draft 3, which is refused below
        validator_class = (
            validator_for(contents, default=Draft3Validator) if isinstance(draft, str) else Draft3Validator
        )
    if validator_class is Draft3Validator:
        raise SchemaFault(f"`$schema: {draft}` is not a draft from 4 to 2020-12")
    return validator_class


def _checked(text: str, label: str) -> Any:
    """Return the decoded document of a schema, which a SchemaFault calls `label`."""
    try:
        contents = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaFault(f"{label} is not JSON: {error}") from None
    if not isinstance(contents, (dict, bool)):
        raise SchemaFault(f"{label} is neither an object nor a boolean")
    try:
        _validator_class(contents).check_schema(contents)  # type: ignore[arg-type]  # a boolean, too, is one
    except SchemaError as error:
        raise SchemaFault(
            f"{label} is not a JSON Schema: {error.message[:200]} - at `{error.json_path}`"
        ) from None
    except RecursionError:
        raise SchemaFault(f"{label} is nested too deep") from None
    return contents


def _resource(contents: Any) -> SchemaResource:
    return Resource.from_contents(contents, default_specification=DRAFT202012)


def _check_references(resource: SchemaResource, resolver: Resolver, seen: set[int]) -> None:
    """Raise SchemaFault if a reference leads nowhere, also one in a schema that is referred to.

    `seen` has the ids of the parts that were checked: schemas may refer to themselves.
    """
    contents: Any = resource.contents
    if id(contents) in seen:
        return
    seen.add(id(contents))
    for keyword in _REFERENCES if isinstance(contents, dict) else ():
        reference = contents.get(keyword)
        if not isinstance(reference, str):
            continue
        try:
            target = resolver.lookup(reference)
        except Unresolvable:
            where = "neither in the schema nor among its references, and nothing is fetched"
            raise SchemaFault(f"`{keyword}: {reference}` is {where}") from None
        _check_references(_resource(target.contents), target.resolver, seen)
    for part in resource.subresources():
        _check_references(part, resolver.in_subresource(part), seen)


def json_schema_columns(schema: JsonSchema) -> pa.Schema:
    """Return a column for each property of the object that a schema describes.

    All columns are nullable: the schema itself checks what is `required`. An integer is a bigint, a number a
    double, a string of `format: date-time` a timestamp, a string in base64 is bytes.

    Raises SchemaFault if the schema does not describe an object with `properties`, or if a property has no
    type, several types, or contains itself.
    """
    type_ = _ColumnReader(schema).type(schema.contents, schema.resolver, (), "$")
    if not pa.types.is_struct(type_):
        raise SchemaFault("the schema is not of an object with `properties`, and only those have columns")
    return pa.schema(list(type_))


class _ColumnReader:
    def __init__(self, schema: JsonSchema) -> None:
        self._hides_siblings = schema.hides_siblings

    def type(self, part: Any, resolver: Resolver, parents: tuple[int, ...], path: str) -> pa.DataType:
        """Return the type of the values of a part of the schema.

        Args:
            parents: The ids of the parts around it.
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
        """Yield a part's types by `$ref`, `anyOf`, `oneOf`, `type`, `const` or `enum`, without null."""
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
