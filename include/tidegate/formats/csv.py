"""`format: csv`: a value is one row, whose fields are the source's columns in their order, without a
header.

The form is that of RFC 4180, with the options of `Csv`: a field that begins with a quote ends with the
next quote that is not doubled, and can contain delimiters, line ends and quotes. In any other field a quote
is an ordinary character. A row may end with a line end. A value that is not exactly one row is unusable,
without effect on others: values are never concatenated, so no value can shift the fields of another.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.formats.decoded import Decoded, malformed
from tidegate.formats.json.columns import ColumnBuilder
from tidegate.formats.registry import Format
from tidegate.formats.text import NOT_UTF8, texts_of
from tidegate.kernel.json_text import json_texts
from tidegate.kernel.keys import canonical_keys
from tidegate.kernel.options import BadOption, Form, HasOptions, option

_LINE_END = r"(?:\r\n|\n|\r)\z"
_NEVER = "(?!)"
_WHOLE = r"-?(?:0|[1-9][0-9]*)"
_NAMED = ("NaN", "Infinity", "-Infinity")  # the names that sinks write, since JSON has no such numbers
_FORMS: dict[str, str] = {
    "boolean": "true|false",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _WHOLE),
    **dict.fromkeys(("float", "double"), rf"{_WHOLE}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|{'|'.join(_NAMED)}"),
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
}
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pt.is_boolean, "boolean"),
    (pt.is_int8, "tinyint"),
    (pt.is_int16, "smallint"),
    (pt.is_int32, "int"),
    (pt.is_int64, "bigint"),
    (pt.is_float32, "float"),
    (pt.is_float64, "double"),
    (pt.is_date, "date"),
)
_LARGEST_FLOAT = float(np.finfo(np.float32).max)

Character = Annotated[str, Form("character")]


def _other_than_before(character: str | None, before: Mapping[str, Any]) -> None:
    """Raise BadOption for a character that has a meaning already: a row could be read in two ways."""
    taken = [name for name in ("delimiter", "quote") if character and before.get(name) == character]
    if taken:
        raise BadOption(f"{character!r} is the {taken[0]} already", "Use another character, or null.")


@dataclass(frozen=True)
class Csv(HasOptions):
    """The dialect of rows: by default RFC 4180, and an empty field is null.

    Quotes can be escaped as well. A field is compared with `null_text` before escapes are resolved.
    """

    delimiter: Character = option("The character between two fields.", 'delimiter: ";"', default=",")
    quote: Character | None = option(
        "The character around a quoted field, doubled inside of it. Null: there is none.",
        'quote: "\'"',
        default='"',
        check=_other_than_before,
    )
    escape: Character | None = option(
        "The character after it is taken literally. Null: there is none.",
        "escape: '\\'",
        default=None,
        check=_other_than_before,
    )
    null_text: str | None = option(
        "A field that is just this, and not in quotes, is null. Null: no field is.",
        "null_text: 'NULL'",
        default="",
    )


RFC_4180 = Csv()


class CsvDecoder:
    """Decodes rows to the columns of `schema`, in the order of the fields. Columns cannot be nested.

    Example::

        CsvDecoder(schema, RFC_4180).decode([b"1,apple"])
    """

    def __init__(self, schema: pa.Schema, dialect: Csv) -> None:
        self.schema = schema
        self._null_text = dialect.null_text
        self._delimiter = dialect.delimiter
        self._special = f"[{_escaped(dialect.quote, dialect.escape)}\r\n]"
        self._reader = _RowReader(dialect, schema.names)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode each value; None is a tombstone. A value that is not one row of the schema is unusable."""
        texts, not_text = texts_of(values)
        reasons = dict.fromkeys(not_text, malformed(NOT_UTF8))
        fields, faults = self._fields(texts)
        reasons |= {row: malformed(why) for row, why in faults.items()}
        columns = [
            column_of(field, column, reasons) for field, column in zip(fields, self.schema, strict=True)
        ]
        mask = texts.is_null().to_numpy(zero_copy_only=False)
        mask[list(reasons)] = True
        struct = pa.StructArray.from_arrays(columns, fields=list(self.schema), mask=pa.array(mask))
        return Decoded(struct, reasons)

    def _fields(self, texts: pa.StringArray) -> tuple[list[pa.StringArray], dict[int, str]]:
        """Return the fields of each text by column, and row -> fault; such a row is null everywhere."""
        special = pc.match_substring_regex(texts, self._special)
        if pc.any(special).as_py():
            # a row may end with one; without it, such rows need no regular expression of a whole row
            texts = pc.replace_substring_regex(texts, _LINE_END, "")
            special = pc.match_substring_regex(texts, self._special)
        special = pc.fill_null(special, False)
        # most rows have no quotes or escapes, and are split in Arrow, without Python code per row
        fields, faults = self._split(pc.if_else(special, None, texts))
        if not special.true_count:
            return fields, faults
        special_fields, unreadable = self._reader.read(texts.filter(special).to_pylist())
        places = np.flatnonzero(special)
        faults |= {int(places[row]): why for row, why in unreadable.items()}
        return [
            pc.replace_with_mask(field, special, replacement)
            for field, replacement in zip(fields, special_fields, strict=True)
        ], faults

    def _split(self, texts: pa.StringArray) -> tuple[list[pa.StringArray], dict[int, str]]:
        """Return the fields of texts without quotes, escapes and line ends, and row -> fault."""
        number = len(self.schema)
        rows = pc.split_pattern(texts, self._delimiter)
        lengths = rows.value_lengths().fill_null(0).to_numpy()
        whole = lengths == number
        faults = {
            row: _miscounted(number, int(lengths[row]))
            for row in map(int, np.flatnonzero(~whole & texts.is_valid().to_numpy(zero_copy_only=False)))
        }
        # all rows here have the same number of fields, so each column is every n-th element
        flat = rows.filter(pa.array(whole)).flatten()
        if self._null_text is not None:
            flat = pc.if_else(pc.equal(flat, self._null_text), None, flat)
        starts = pa.array((np.cumsum(whole) - 1) * number, mask=~whole)
        return [flat.take(pc.add(starts, place)) for place in range(number)], faults


class _RowReader:
    """Reads rows with quotes, escapes or line ends, by a regular expression for a whole row."""

    def __init__(self, dialect: Csv, names: Sequence[str]) -> None:
        field = _field_pattern(dialect)
        self._dialect = dialect
        self._names = names
        self._field = re.compile(field, re.DOTALL)
        self._row = re.compile(re.escape(dialect.delimiter).join([field] * len(names)), re.DOTALL)
        self._nothing = (None,) * 2 * len(names)

    def read(self, texts: Sequence[str]) -> tuple[list[pa.StringArray], dict[int, str]]:
        """Return the fields of each text, by column, and row -> fault. A text with a fault has null in all
        fields.

        Args:
            texts: Rows without their line end.
        """
        faults: dict[int, str] = {}
        parts: list[str | None] = []
        for row, text in enumerate(texts):
            match = self._row.fullmatch(text)
            if match is None:
                faults[row] = self._fault(text)
            # two groups per field: with quotes or without; exactly one of them is set
            parts += match.groups() if match else self._nothing
        width = len(self._nothing)
        arrays = iter([pa.array(parts[place::width], pa.string()) for place in range(width)])
        return [self._column(*pair) for pair in zip(arrays, arrays, strict=True)], faults

    def _column(self, quoted: pa.StringArray, plain: pa.StringArray) -> pa.StringArray:
        """Return the texts of one column, from the groups with and without quotes, with escapes resolved."""
        escape, quote, null = self._dialect.escape, self._dialect.quote, self._dialect.null_text
        if null is not None:
            plain = pc.if_else(pc.equal(plain, null), None, plain)
        if escape is not None:
            taken = f"(?s){_escaped(escape)}(.)"
            plain = pc.replace_substring_regex(plain, taken, r"\1")
            pairs = f"{taken}|{_escaped(quote)}({_escaped(quote)})"
            quoted = pc.replace_substring_regex(quoted, pairs, r"\1\2")
        elif quote is not None:
            quoted = pc.replace_substring(quoted, quote * 2, quote)
        return pc.coalesce(quoted, plain)

    def _fault(self, text: str) -> str:
        """Return why a text is not one row with as many fields as there are columns."""
        at = number = 0
        while True:
            field = self._field.match(text, at)
            if field is None:
                return f"A quote is not closed - at {self._name(number)}"
            number, at = number + 1, field.end()
            if at == len(text):
                return _miscounted(len(self._names), number)
            if text[at] != self._dialect.delimiter:
                return f"{self._stray(text[at])} - at {self._name(number - 1)}"
            at += 1

    def _stray(self, character: str) -> str:
        if character in "\r\n":
            return "Expected one row, got a line end"
        if character == self._dialect.escape:
            return "Nothing follows the escape"
        return f"Expected {self._dialect.delimiter!r} after the quote, got {character!r}"

    def _name(self, place: int) -> str:
        return f"`{self._names[place]}`" if place < len(self._names) else f"field {place + 1}"


def _field_pattern(dialect: Csv) -> str:
    """Return the pattern of a field, with two groups: the content of quotes, or the whole field."""
    plain = _run(f"{_escaped(dialect.delimiter, dialect.escape)}\r\n", dialect.escape)
    if dialect.quote is None:
        return f"(?:({_NEVER})|({plain}))"
    quote = re.escape(dialect.quote)
    inner = _run(_escaped(dialect.quote, dialect.escape), dialect.escape, quote * 2)
    return f"(?:{quote}({inner}){quote}|(?!{quote})({plain}))"


def _run(ends: str, escape: str | None, pair: str | None = None) -> str:
    """Return the pattern of characters up to one of `ends`; escapes and pairs of quotes do not end it."""
    taken_in = [*([f"{re.escape(escape)}."] if escape else []), *([pair] if pair else [])]
    return f"[^{ends}]*" + (f"(?:(?:{'|'.join(taken_in)})[^{ends}]*)*" if taken_in else "")


def _escaped(*characters: str | None) -> str:
    """Escape characters for a pattern, also within a character class."""
    return "".join(re.escape(character) for character in characters if character)


def _miscounted(expected: int, number: int) -> str:
    return f"Expected {expected} field{'' if expected == 1 else 's'}, got {number}"


def column_of(texts: pa.StringArray, column: pa.Field, reasons: dict[int, str]) -> pa.Array:
    """Return texts as a column, null where one does not fit.

    Args:
        reasons: row -> reason; gets the reason of each text that does not fit, if its row has none yet.
    """
    if pt.is_string(column.type):
        return texts
    path = f"`{column.name}`"
    builder = ColumnBuilder()
    if pt.is_timestamp(column.type):
        built = builder.times(texts, column.type, column.name, range(len(texts)))
    elif pt.is_decimal(column.type):
        values = texts.cast(pa.binary()).to_pylist()
        built = builder.decimals(values, column.type, column.name, range(len(texts)))
    elif pt.is_binary(column.type):
        built = _binaries(texts, builder.faults, path)
    else:
        built = _scalars(texts, column.type, builder.faults, path)
    for row, why in builder.faults.items():
        reasons.setdefault(row, malformed(why))
    return built


def _scalars(texts: pa.StringArray, type_: pa.DataType, faults: dict[int, str], path: str) -> pa.Array:
    kind = next(kind for matches, kind in _KINDS if matches(type_))
    fits = pc.match_substring_regex(texts, f"^(?:{_FORMS[kind]})$")
    _note(pc.invert(fits), f"Expected `{kind}` - at {path}", faults)
    texts = pc.if_else(fits, texts, None)
    written = texts.is_valid()
    if pt.is_date(type_):  # Arrow accepts the year 0, Python's dates do not
        texts = pc.if_else(pc.starts_with(texts, "0000"), None, texts)
    # a float32 is read as a double first: Arrow would round a too large number to infinity
    values = _cast(texts, pa.float64() if pt.is_float32(type_) else type_)
    lost = pc.and_(values.is_null(), written)
    if pt.is_floating(type_):
        beyond = pc.greater(pc.abs(values), _LARGEST_FLOAT if pt.is_float32(type_) else np.finfo(float).max)
        lost = pc.and_not(beyond, pc.is_in(texts, pa.array(_NAMED)))
    _note(lost, f"A value does not fit into `{kind}` - at {path}", faults)
    return values.cast(type_)


def _cast(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Return each text's value; null if the type does not have it."""
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        return pa.array([_value(text, type_) for text in texts], type_)


def _value(text: pa.StringScalar, type_: pa.DataType) -> Any:
    try:
        return text.cast(type_).as_py()
    except pa.ArrowInvalid:
        return None


def _binaries(texts: pa.StringArray, faults: dict[int, str], path: str) -> pa.BinaryArray:
    """Decode base64."""
    values: list[bytes | None] = [None] * len(texts)
    for row, text in enumerate(texts.to_pylist()):
        try:
            values[row] = None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):  # the second: a character beyond ASCII
            faults[row] = f"Expected base64 - at {path}"
    return pa.array(values, pa.binary())


def _note(mask: pa.BooleanArray, why: str, faults: dict[int, str]) -> None:
    if mask.true_count:
        for row in map(int, np.flatnonzero(pc.fill_null(mask, False))):
            faults.setdefault(row, why)


_TO_QUOTE = r'^[\x00-#]|[,"\r\n]|[\x00-\x20]$|^$'
"""Texts that need quotes, or that some readers take for a comment or trim. An empty text is not null."""
_FIRST_TO_QUOTE = rf"{_TO_QUOTE}|^[^0-9A-Za-z]"
"""Apache Commons CSV, which ksqlDB writes with, quotes these texts in the first field of a row, too."""


def csv_texts(values: pa.StructArray) -> pa.StringArray:
    """Return values as rows of RFC 4180 without a line end; null for a deletion. A null is an empty field.

    Example: the columns 7 and `a,b` give `7,"a,b"`.
    """
    fields = [_field_texts(column, place) for place, column in enumerate(values.flatten())]
    rows = pc.binary_join_element_wise(*[field.fill_null("") for field in fields], ",")
    return pc.if_else(values.is_valid(), rows, pa.scalar(None, pa.string()))


def _field_texts(column: pa.Array, place: int) -> pa.StringArray:
    if pt.is_string(column.type):
        texts = column
    elif pt.is_decimal(column.type):
        texts = canonical_keys(["field"], [column])  # all digits: JSON writes 0E-16
    else:
        texts = pc.utf8_trim(json_texts(column), '"')
    to_quote = pc.match_substring_regex(texts, _FIRST_TO_QUOTE if place == 0 else _TO_QUOTE)
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.if_else(to_quote, pc.binary_join_element_wise('"', doubled, '"', ""), texts)


FORMATS = (
    Format(
        "csv",
        lambda layout: CsvDecoder(layout.columns, layout.csv),
        is_flat=True,
        is_sent=True,
        write=csv_texts,
        renaming="Rename it in `columns`: fields of CSV are known by their places.",
    ),
)
