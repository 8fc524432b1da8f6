"""JSON Schema: its texts, held against the rules of their draft and the references that they have.

What a value has to be is the library's to say (`jsonschema`, an extra). Nothing is ever fetched: a reference
is to the document itself, or to one that is given by name.
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
"""Where a part of a schema looks up its references: `referencing`'s, which is generic over dialects."""


@dataclass(frozen=True)
class JsonSchema:
    """A schema whose references are all there. `contents` is the document, `resolver` what it looks up by."""

    contents: Any
    resolver: Resolver
    registry: Registry[Any]
    validator_class: type[Validator]

    @property
    def hides_siblings(self) -> bool:
        """Whether its draft passes over what stands beside a `$ref`."""
        return any(draft in self.validator_class.META_SCHEMA["$schema"] for draft in _DRAFTS_WITHOUT_SIBLINGS)

    def validator(self) -> Validator:
        """What says of a value whether it satisfies the schema, and why not."""
        corrected: type[Validator] = extend(  # type: ignore[no-untyped-call]  # of the library
            self.validator_class, {"multipleOf": _multiple_of}
        )
        return corrected(self.contents, registry=self.registry)


def is_multiple(value: float, divisor: float) -> bool:
    """Whether a number is a multiple, by the digits that both are written with: the library divides doubles,
    of which 19.99 / 0.01 is no whole number.
    """
    return _fraction(value) % _fraction(divisor) == 0


def _fraction(number: float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(number))


def _multiple_of(validator: Any, divisor: float, value: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "number") and not is_multiple(value, divisor):
        yield ValidationError(f"{value!r} is not a multiple of {divisor}")


def parse_json_schema(text: str, references: Mapping[str, str]) -> JsonSchema:
    """The schema of a text; `references` are the texts that it refers to, by the names that it uses.

    Without `$schema` it is of draft 2020-12. Raises SchemaFault.
    """
    contents = _checked(text, "the schema")
    resource = _resource(contents)
    registry: Registry[Any] = Registry().with_resource("", resource)
    for name, other in references.items():
        named = _resource(_checked(other, f"`{name}`"))
        registry = registry.with_resources([(name, named), (urljoin(resource.id() or "", name), named)])
    resolver = registry.resolver_with_root(resource)
    try:
        _check_references(resource, resolver, set())
    except RecursionError:
        raise SchemaFault("the schema is nested too deep") from None
    return JsonSchema(contents, resolver, registry, _validator_class(contents))


def _validator_class(contents: Any) -> type[Validator]:
    draft = contents.get("$schema") if isinstance(contents, dict) else None
    found: type[Validator] = Draft202012Validator
    if draft is not None:  # of an unknown one the oldest, which is refused, too
        found = (
            validator_for(contents, default=Draft3Validator) if isinstance(draft, str) else Draft3Validator
        )
    if found is Draft3Validator:
        raise SchemaFault(f"`$schema: {draft}` is none of the drafts 4 to 2020-12")
    return found


def _checked(text: str, whose: str) -> Any:
    try:
        contents = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaFault(f"{whose} is not JSON: {error}") from None
    if not isinstance(contents, (dict, bool)):
        raise SchemaFault(f"{whose} is neither an object nor a boolean")
    try:
        _validator_class(contents).check_schema(contents)  # type: ignore[arg-type]  # a boolean, too, is one
    except SchemaError as error:
        raise SchemaFault(
            f"{whose} is no JSON Schema: {error.message[:200]} - at `{error.json_path}`"
        ) from None
    except RecursionError:
        raise SchemaFault(f"{whose} is nested too deep") from None
    return contents


def _resource(contents: Any) -> SchemaResource:
    return Resource.from_contents(contents, default_specification=DRAFT202012)


def _check_references(resource: SchemaResource, resolver: Resolver, seen: set[int]) -> None:
    """Whether what it refers to is there, and what that refers to."""
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
