"""What a change says of its place in the order of its key's changes, as one text that sorts as it does."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.core.emit.in_sequence import SEPARATOR

_DIGITS = 19
"""Of the largest bigint; days and microseconds have no more."""
_ESCAPE = "\x01"
"""In texts it stands before what would sort otherwise: itself and SEPARATOR."""


def sequence_texts(parts: Sequence[pa.Array]) -> pa.StringArray:
    """The parts of each row's sequence, the most significant first, as one text; null where one of them is.

    Parts are whole numbers, decimals without a fraction, texts, dates or timestamps. Of the same types two
    texts compare as two sequences do; all integers are one type.
    """
    texts = [_text(part) for part in parts]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, SEPARATOR)


def _text(part: pa.Array) -> pa.StringArray:
    if pt.is_string(part.type):
        return _escaped(part)
    if pt.is_decimal(part.type):
        return _number_texts(part, 38)
    if pt.is_date(part.type):
        part = part.cast(pa.int32())
    return _number_texts(part.cast(pa.int64()), _DIGITS)


def _escaped(text: pa.StringArray) -> pa.StringArray:
    """Its order is that of code points, also beside other parts."""
    escaped = pc.replace_substring(text, _ESCAPE, _ESCAPE + "\x02")
    return pc.replace_substring(escaped, SEPARATOR, _ESCAPE + _ESCAPE)


def _number_texts(number: pa.Array, digits: int) -> pa.StringArray:
    """With leading zeros. Of those below 0, which are rare, what they are above the least there can be,
    behind a sign that sorts before digits.
    """
    if not pc.any(pc.less(number, 0)).as_py():
        return pc.utf8_lpad(number.cast(pa.string()), digits, "0")
    wide = number.cast(pa.decimal256(digits + 2, 0))
    below = pc.less(wide, pa.scalar(0, wide.type))
    above_least = pc.add(wide, pa.scalar(10**digits, wide.type))
    text = pc.utf8_lpad(pc.if_else(below, above_least.cast(wide.type), wide).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(pc.if_else(below, "-", ""), text, "")
