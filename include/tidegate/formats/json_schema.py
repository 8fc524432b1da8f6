"""`format: json` with a schema: strict JSON; a value that does not satisfy the schema is unusable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
from jsonschema.exceptions import ValidationError, best_match

from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.deep import room_on_stack
from tidegate.formats.json import NO_OLDER_NAMES, JsonDecoder, OlderNames, rows_nested_deeper
from tidegate.formats.json_checks import compiled_check
from tidegate.formats.text import texts_of
from tidegate.schemas.json_schema import JsonSchema

MOST_NESTED = 100
"""The allowed depth of objects and arrays: checks recurse as deep as the value."""
_TOO_DEEP = malformed(f"it is nested more than {MOST_NESTED} deep, which is too deep for a schema")
_MOST_TEXT = 120


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
    """Return the keyword that is not satisfied, and the path. The value is left out, since it can be
    large.
    """
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
