"""`format: json` with a schema: strict JSON; a value that does not satisfy the schema is unusable.

The library interprets the schema again for each value, which takes tens of microseconds. A schema that has
only common keywords is compiled to Python functions, which give exactly the library's answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from jsonschema.exceptions import ValidationError, best_match

from tidegate.formats.confluent import schemaful_decoder
from tidegate.formats.decoded import Decoded, Decoder, Reason, malformed, room_on_stack
from tidegate.formats.json import NO_OLDER_NAMES, JsonDecoder, OlderNames, rows_nested_deeper
from tidegate.formats.json.schema import JsonSchema, Resolver, is_multiple, pinned_json_schema
from tidegate.formats.schemas import PinnedSchema, SourceSchemas
from tidegate.formats.text import texts_of
from tidegate.formats.wire import Cursor, Wire

MOST_NESTED = 100
"""The allowed depth of objects and arrays: checks recurse as deep as the value."""
_TOO_DEEP = malformed(f"it is nested more than {MOST_NESTED} deep, which is too deep for a schema")
_MOST_TEXT = 120
_PREFIX = f"{Reason.MALFORMED}: "
Check = Callable[[Any], bool]
_TYPES: Mapping[str, Check] = {
    "null": lambda value: value is None,
    "boolean": lambda value: value is True or value is False,
    "string": lambda value: type(value) is str,
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "number": lambda value: type(value) is int or type(value) is float,
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
}
_BESIDE = frozenset(["format", "$ref", "required", "properties", "additionalProperties"])


class JsonSchemaDecoder:
    """Decodes values that satisfy `json_schema` to the columns of `schema`. `aliases`: see `JsonDecoder`."""

    def __init__(
        self, schema: pa.Schema, json_schema: JsonSchema, aliases: OlderNames = NO_OLDER_NAMES
    ) -> None:
        self.schema = schema
        self._columns = JsonDecoder(schema, aliases)
        self._read = msgspec.json.Decoder().decode
        self._validator = json_schema.validator()
        self._check = compiled_check(json_schema) or self._validator.is_valid

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode the declared fields of each value's object. None is a tombstone."""
        # columns first: what they refuse need not be checked against the schema
        decoded = self._columns.decode(values)
        reasons = dict(decoded.reasons)
        for row in rows_nested_deeper(MOST_NESTED, texts_of(values)[0], values):
            reasons.setdefault(row, _TOO_DEEP)
        with room_on_stack():
            for row, value in enumerate(values):
                if value is not None and row not in reasons:
                    reason = self._reason(value)
                    if reason is not None:
                        reasons[row] = reason
        if len(reasons) == len(decoded.reasons):
            return decoded
        return Decoded(_without(decoded.columns, reasons), reasons)

    def _reason(self, value: bytes) -> str | None:
        """Return why a value cannot be used; None if it can."""
        try:
            document = self._read(value)
        # such as a number that is too large, in a field that is not a column
        except msgspec.DecodeError as error:
            return malformed(str(error))
        # the library explains a failure, which is slow, so it sees only values that fail
        if self._check(document):
            return None
        return malformed(_explained(best_match(self._validator.iter_errors(document))))


def _explained(error: ValidationError) -> str:
    """Return the broken keyword and the path, without the value, which can be large."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    if error.validator == "required":
        missing = error.message.removesuffix(" is a required property").strip("'")
        return f"Expected `{missing}`, which is required - at `${path}`"
    expected = json.dumps(error.validator_value, ensure_ascii=False, default=str)
    shown = expected if len(expected) <= _MOST_TEXT else f"{expected[:_MOST_TEXT]}…"
    return f"Expected `{error.validator}: {shown}` - at `${path}`"


def _without(columns: pa.StructArray, reasons: Mapping[int, str]) -> pa.StructArray:
    """Return the columns with nulls in these rows."""
    usable = columns.is_valid().to_numpy(zero_copy_only=False)
    usable[list(reasons)] = False
    return pa.StructArray.from_arrays(columns.flatten(), fields=list(columns.type), mask=pa.array(~usable))


def json_decoder(columns: pa.Schema, schemas: SourceSchemas, aliases: OlderNames) -> Decoder:
    """Return what decodes values that satisfy the reader's schema, or without one the writer's.

    Raises SchemaFault if the source has neither a schema file nor a registry, or if a schema is not usable.
    """
    return schemaful_decoder(
        columns,
        schemas,
        lambda schema: _decoder(columns, schema, aliases),
        lambda schema, _: _FramedJson(_decoder(columns, schemas.reader or schema, aliases)),
    )


def _decoder(columns: pa.Schema, schema: PinnedSchema, aliases: OlderNames) -> Decoder:
    return JsonSchemaDecoder(columns, pinned_json_schema(schema), aliases)


class _FramedJson:
    """Decodes the values behind the ids of one schema."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def read(self, wire: Wire, cursor: Cursor) -> Sequence[pa.Array]:
        """Return the columns of the values at the cursor's positions; see `confluent.Subdecoder`."""
        spans = zip(cursor.at.tolist(), cursor.ends.tolist(), strict=True)
        decoded = self._decoder.decode([bytes(wire.data[start:end]) for start, end in spans])
        for place, reason in decoded.reasons.items():
            wire.faults.setdefault(int(cursor.rows[place]), reason.removeprefix(_PREFIX))
        columns: Sequence[pa.Array] = decoded.columns.flatten()
        return columns


class _Unsupported(Exception):
    """A keyword that only the library can check."""


def compiled_check(schema: JsonSchema) -> Check | None:
    """Return a function that checks values as JSON is read; None if only the library can check the schema.

    Example::

        check = compiled_check(schema)
        is_valid = check({"id": 1}) if check else schema.validator().is_valid({"id": 1})
    """
    try:
        return _Compiler(schema).check(schema.contents, schema.resolver)
    except _Unsupported:
        return None


class _Compiler:
    def __init__(self, schema: JsonSchema) -> None:
        self._keywords = frozenset(schema.validator_class.VALIDATORS)
        self._hides_siblings = schema.hides_siblings
        self._root = schema.contents
        if (
            "const" not in self._keywords
        ):  # before draft 6, 1.0 was not an integer, and bounds had another form
            raise _Unsupported
        self._made: dict[int, Check] = {}
        self._making: set[int] = set()

    def check(self, part: Any, resolver: Resolver) -> Check:
        """Return the check of a part of the schema. Raises _Unsupported if the part has other keywords."""
        if isinstance(part, bool):
            return lambda _: part
        if id(part) in self._made:
            return self._made[id(part)]
        if id(part) in self._making:  # it refers to itself: the check exists when it is called
            return lambda value: self._made[id(part)](value)
        # by identity: dicts have no hash, and equal parts of two documents can refer to different things
        self._making.add(id(part))
        if "$id" in part and part is not self._root:  # references in it are relative to that id
            raise _Unsupported
        checks = list(self._checks(part, resolver))
        self._made[id(part)] = _all(checks)
        return self._made[id(part)]

    def _checks(self, part: Mapping[str, Any], resolver: Resolver) -> Iterable[Check]:
        if "$ref" in part:
            target = resolver.lookup(part["$ref"])
            yield self.check(target.contents, target.resolver)
            if self._hides_siblings:
                return
        for keyword, argument in part.items():
            if keyword in _CONSTRAINTS:
                yield _CONSTRAINTS[keyword](argument)
            elif keyword in ("allOf", "anyOf", "oneOf"):
                yield _COMBINED[keyword]([self.check(choice, resolver) for choice in argument])
            elif keyword == "not":
                yield _not(self.check(argument, resolver))
            elif keyword == "items":
                if not isinstance(argument, (dict, bool)):
                    raise _Unsupported
                yield _items(self.check(argument, resolver))
            elif keyword in self._keywords and keyword not in _BESIDE:
                raise _Unsupported
        yield from self._of_objects(part, resolver)

    def _of_objects(self, part: Mapping[str, Any], resolver: Resolver) -> Iterable[Check]:
        properties = {name: self.check(inner, resolver) for name, inner in part.get("properties", {}).items()}
        if "required" in part:
            yield _required(part["required"])
        if "additionalProperties" in part and part["additionalProperties"] is not True:
            yield _additional(properties, self.check(part["additionalProperties"], resolver))
        if properties:
            yield _properties(properties)


def _all(checks: list[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]

    return lambda value: all(inner(value) for inner in checks)


def _any(checks: list[Check]) -> Check:
    return lambda value: any(inner(value) for inner in checks)


_COMBINED: Mapping[str, Callable[[list[Check]], Check]] = {
    "allOf": _all,
    "anyOf": _any,
    "oneOf": lambda checks: lambda value: sum(inner(value) for inner in checks) == 1,
}


def _not(inner: Check) -> Check:
    return lambda value: not inner(value)


def _items(inner: Check) -> Check:
    return lambda value: type(value) is not list or all(map(inner, value))


def _required(names: list[str]) -> Check:
    return lambda value: type(value) is not dict or all(name in value for name in names)


def _properties(properties: Mapping[str, Check]) -> Check:
    pairs = tuple(properties.items())

    def check(value: Any) -> bool:
        if type(value) is dict:
            for name, inner in pairs:
                if name in value and not inner(value[name]):
                    return False
        return True

    return check


def _additional(properties: Mapping[str, Check], inner: Check) -> Check:
    """Check the values that `properties` does not name."""

    def check(value: Any) -> bool:
        if type(value) is dict:
            for name in value.keys() - properties.keys():
                if not inner(value[name]):
                    return False
        return True

    return check


def _types(names: str | list[str]) -> Check:
    checks = [_TYPES[name] for name in ([names] if isinstance(names, str) else names)]
    return checks[0] if len(checks) == 1 else _any(checks)


def _listed(values: list[Any]) -> Check:
    """Check that a value is one of these, none of which may be an object or an array.

    In Python `True == 1`, in JSON Schema `true` is not 1, so the type is compared, too.
    """
    if any(type(value) in (dict, list) for value in values):
        raise _Unsupported
    members = frozenset((type(value) is bool, value) for value in values)
    return lambda value: type(value) not in (dict, list) and (type(value) is bool, value) in members


def _number(holds: Callable[[Any, Any], bool]) -> Callable[[Any], Check]:
    return lambda bound: (
        lambda value: (type(value) is not int and type(value) is not float) or holds(value, bound)
    )


def _multiple(divisor: float) -> Check:
    return lambda value: (type(value) is not int and type(value) is not float) or is_multiple(value, divisor)


def _sized(type_: type[Any], holds: Callable[[int, Any], bool]) -> Callable[[Any], Check]:
    return lambda bound: lambda value: type(value) is not type_ or holds(len(value), bound)


def _pattern(text: str) -> Check:
    search = re.compile(text).search
    return lambda value: type(value) is not str or search(value) is not None


def _repeats(unique: bool) -> Check:
    if unique:
        raise _Unsupported
    return lambda _: True


_CONSTRAINTS: Mapping[str, Callable[[Any], Check]] = {
    "type": _types,
    "enum": _listed,
    "const": lambda value: _listed([value]),
    "minimum": _number(lambda value, bound: value >= bound),
    "maximum": _number(lambda value, bound: value <= bound),
    "exclusiveMinimum": _number(lambda value, bound: value > bound),
    "exclusiveMaximum": _number(lambda value, bound: value < bound),
    "multipleOf": _multiple,
    "minLength": _sized(str, lambda size, bound: size >= bound),
    "maxLength": _sized(str, lambda size, bound: size <= bound),
    "minItems": _sized(list, lambda size, bound: size >= bound),
    "maxItems": _sized(list, lambda size, bound: size <= bound),
    "minProperties": _sized(dict, lambda size, bound: size >= bound),
    "maxProperties": _sized(dict, lambda size, bound: size <= bound),
    "pattern": _pattern,
    "uniqueItems": _repeats,
}
