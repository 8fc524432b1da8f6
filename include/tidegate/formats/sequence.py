"""Encode a change's place in the order of its key's changes as one text that sorts in this order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tidegate.kernel.strategies.in_sequence import SEPARATOR

_DIGITS = 19
"""The digits of the largest bigint; days and microseconds have no more."""
_ESCAPE = "\x01"
"""Escapes itself and SEPARATOR in texts, which would sort in another order."""


def sequence_texts(parts: Sequence[pa.Array]) -> pa.StringArray:
    """Return the parts of each row's sequence as one text; null if one of the parts is null.

    Args:
        parts: The most significant first: integers, decimals without a fraction, texts, dates or timestamps.

    For parts of the same types, texts compare as the sequences do; all integers are one type.

    Example: the bigint 7 is `0000000000000000007`.
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
    """Escape a text so that it sorts by code points, also if other parts follow."""
    escaped = pc.replace_substring(text, _ESCAPE, _ESCAPE + "\x02")
    return pc.replace_substring(escaped, SEPARATOR, _ESCAPE + _ESCAPE)


def _number_texts(number: pa.Array, digits: int) -> pa.StringArray:
    """Return numbers with leading zeros.

    A number below 0, which is rare, is written as its distance from the least number, behind a sign that
    sorts before digits.
    """
    if not pc.any(pc.less(number, 0)).as_py():
        # with equal lengths, numbers sort as texts do
        return pc.utf8_lpad(number.cast(pa.string()), digits, "0")
    wide = number.cast(pa.decimal256(digits + 2, 0))
    below = pc.less(wide, pa.scalar(0, wide.type))
    # the smaller a number, the smaller its distance from the least one
    above_least = pc.add(wide, pa.scalar(10**digits, wide.type))
    text = pc.utf8_lpad(pc.if_else(below, above_least.cast(wide.type), wide).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(pc.if_else(below, "-", ""), text, "")
