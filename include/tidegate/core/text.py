"""Text is UTF-8: Spark's cast of bytes to `string` keeps them as they are, text or not."""

from __future__ import annotations

import pyarrow as pa


def not_text(values: pa.Array) -> pa.BooleanArray | None:
    """True where a value has a text in it, however deep, that is not UTF-8; None when there is none.

    Some ways through the kernel would let such a value through, and others fail on it. Whole columns are
    looked at; row by row only where one of them is at fault.
    """
    if _is_text(values):
        return None
    # a slice is looked at with all that it is a slice of: a row that is taken out stands alone
    rows = [not _is_text(values.take(pa.array([row]))) for row in range(len(values))]
    return pa.array(rows, pa.bool_()) if any(rows) else None


def _is_text(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
