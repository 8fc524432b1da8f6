"""Records that cannot be used: passed through as they are, or detected by the kernel, with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed, RecordFailed, UserFunctionFailed
from tidegate.kernel.calendar import beyond_calendar
from tidegate.kernel.counts import Counts
from tidegate.kernel.rows import QUARANTINED, fill
from tidegate.kernel.stage import Stage
from tidegate.kernel.text import not_text

RecordError = ConditionFailed | RecordFailed | UserFunctionFailed
"""Errors that one record's values can cause."""
RECORD_ERRORS = (ConditionFailed, RecordFailed, UserFunctionFailed)
GO_ON = "Or write `on_error: quarantine` at the stage, to go on without such records."

_COLUMNS = ("topic", "partition", "offset", "timestamp", "input")
CONDITION_FAILED, RECORD_FAILED, FUNCTION_FAILED = "condition_failed", "record_failed", "function_failed"
"""Reasons that the kernel gives; `formats.reasons` explains them, with all others."""
_REASONS = {
    ConditionFailed: CONDITION_FAILED,
    RecordFailed: RECORD_FAILED,
    UserFunctionFailed: FUNCTION_FAILED,
}
_UNREADABLE = (
    (
        not_text,
        RecordFailed(
            "It has a text that is not UTF-8",
            "Keep such bytes as `binary`, or select `try_validate_utf8(cast(x as string))`: null for them.",
        ),
    ),
    (
        beyond_calendar,
        RecordFailed(
            "It has a date or timestamp outside of the years 1 to 9999",
            "Keep it out in `select`, for example with `case`, or select it as a number.",
        ),
    ),
)
"""A function that finds values which not every reader can read, as a mask or None, and the error for them."""


def reason_of(error: RecordError) -> str:
    """Return why a record is in quarantine.

    Example: "condition_failed: `x / y > 1` has no result: it divides by zero".
    """
    return f"{_REASONS[type(error)]}: {error.what}"


def at_record(error: RecordError, stage: Stage, position: Sequence[object]) -> RecordError:
    """Return the error of one record with its position (topic, partition, offset) in the message.

    Args:
        stage: Its name is added, if it has one.
        position: Topic, partition and offset.
    """
    in_stage = f" in the stage `{stage.name}`" if stage.name else ""
    place = f"at the record {'/'.join(map(str, position))}{in_stage}"
    return type(error)(f"{error.what} ({place})", f"{error.fix} {GO_ON}")


def pass_through(schema: pa.Schema, rows: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
    """Return quarantined rows as they come out of the kernel, and count them.

    Args:
        schema: The kernel's output schema.
        rows: Rows with `input`.
    """
    counts["quarantined"] += rows.num_rows
    return fill(schema, QUARANTINED, {name: rows.column(name) for name in _COLUMNS}, rows.num_rows)


def with_reasons(rows: pa.RecordBatch, reasons: Sequence[str]) -> pa.RecordBatch:
    """Return records with the reason of each in its `input`, beside the other fields.

    Args:
        rows: Records with `input`.
        reasons: One per row.
    """
    inputs = rows.column("input")
    fields = list(inputs.type)
    parts = [
        pa.array(reasons, field.type) if field.name == "reason" else pc.struct_field(inputs, field.name)
        for field in fields
    ]
    place = rows.schema.get_field_index("input")
    return rows.set_column(place, rows.schema.field(place), pa.StructArray.from_arrays(parts, fields=fields))


def without_unreadable(stage: Stage, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows whose values every reader can read; and the others, if there are any, with their
    reason.

    Raises RecordFailed at the first unreadable record if the stage stops for it.
    """
    if stage.emit.forwards_only:
        return rows, None
    parts = []
    for find, error in _UNREADABLE:
        mask = find(rows.column("value"))
        if mask is None:
            continue
        unreadable = rows.filter(pc.fill_null(mask, False))
        if stage.on_error == "stop":
            position = [unreadable.column(name)[0].as_py() for name in _COLUMNS[:3]]
            raise at_record(error, stage, position)
        parts.append(with_reasons(unreadable, list(repeat(reason_of(error), unreadable.num_rows))))
        rows = rows.filter(pc.invert(pc.fill_null(mask, False)))
    return rows, pa.concat_batches(parts) if parts else None
