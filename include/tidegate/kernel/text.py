"""Find texts that are not UTF-8: Spark's cast of bytes to `string` keeps them as they are, text or not."""

from __future__ import annotations

import pyarrow as pa


def not_text(values: pa.Array) -> pa.BooleanArray | None:
    """Return True where a value contains a text, however deep, that is not UTF-8; None if there is none.

    Some ways through the kernel would accept such a value, and others fail on it. Whole columns are checked
    first; single rows only if a column fails.

    Example: texts with the bytes `61` and `ff` give `[False, True]`.
    """
    if _is_text(values):
        return None
    # Arrow validates the whole buffers of a slice; `take` copies a row into buffers of its own
    rows = [not _is_text(values.take(pa.array([row]))) for row in range(len(values))]
    return pa.array(rows, pa.bool_()) if any(rows) else None


def _is_text(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
