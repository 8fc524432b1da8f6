"""JSON Schema: parse a schema, check it by the rules of its draft, and check that its references exist.

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

from jsonschema import Draft3Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaResource

from tidegate.schemas.faults import SchemaFault

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DRAFTS_WITHOUT_SIBLINGS = ("draft-04", "draft-06", "draft-07")

Resolver = Any
"""`referencing`'s resolver, by which a part of a schema looks up its references.

It is generic over dialects.
"""


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
