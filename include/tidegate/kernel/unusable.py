"""Records that the kernel does not decide: unusable ones, those that a filter removes, and late ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import ConditionFailed, RecordFailed, UserFunctionFailed
from tidegate.kernel.counts import Counts
from tidegate.kernel.json_text import json_texts
from tidegate.kernel.rows import QUARANTINED, REMOVED, TRACE, fill, with_column
from tidegate.kernel.stage import Stage
from tidegate.kernel.tables import made_by_tables
from tidegate.kernel.windows import Span


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


# days from 1970 to 0001-01-01 and to 9999-12-31
_DAYS = (-719_162, 2_932_896)

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_SECONDS_OF_DAY = 86_400


def beyond_calendar(values: pa.Array) -> pa.BooleanArray | None:
    """Return True for each value that contains a date or timestamp outside of the years 1 to 9999, however
    deep.

    Returns None if there is none, which is found without a loop over the values.

    Example: days 0 and 3,000,000 since 1970 give `[False, True]`, day 0 alone gives None.
    """
    outside = _outside(values)
    return outside if outside is not None and pc.any(outside).as_py() else None


def _outside(values: pa.Array) -> pa.BooleanArray | None:
    """Return True, False or null per value; None for types without dates."""
    type_ = values.type
    if pa.types.is_date32(type_):
        return _beside(values.cast(pa.int32()), *_DAYS)
    if pa.types.is_timestamp(type_):
        unit = _PER_SECOND[type_.unit]
        least, most = _DAYS[0] * _SECONDS_OF_DAY * unit, (_DAYS[1] + 1) * _SECONDS_OF_DAY * unit - 1
        return _beside(values.cast(pa.int64()), least, most)
    if pa.types.is_struct(type_):
        return _either([_outside(pc.struct_field(values, [at])) for at in range(type_.num_fields)])
    if pa.types.is_list(type_):
        return _in_lists(values, _outside(pc.list_flatten(values)))
    if pa.types.is_map(type_):
        # as a list of entries: Arrow has no kernel that flattens a map
        entry = pa.struct([type_.key_field, type_.item_field])
        return _outside(values.cast(pa.list_(pa.field("entries", entry, nullable=False))))
    return None


def _beside(numbers: pa.Array, least: int, most: int) -> pa.BooleanArray:
    return pc.or_(pc.less(numbers, least), pc.greater(numbers, most))


def _either(parts: list[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    result: pa.BooleanArray | None = None
    for part in parts:
        if part is not None:
            # `or` with null is null, which would hide what the other part has
            part = pc.fill_null(part, False)
            result = part if result is None else pc.or_(result, part)
    return result


def _in_lists(lists: pa.Array, elements: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return True for each list that contains such an element."""
    if elements is None:
        return None
    places = pc.list_parent_indices(lists).filter(pc.fill_null(elements, False))
    mask = np.zeros(len(lists), dtype=bool)
    mask[places.to_numpy(zero_copy_only=False)] = True
    return pa.array(mask)


RecordError = ConditionFailed | RecordFailed | UserFunctionFailed
"""Errors that one record's values can cause."""

RECORD_ERRORS = (ConditionFailed, RecordFailed, UserFunctionFailed)

GO_ON = "Or write `on_error: quarantine` at the stage, to go on without such records."

_COLUMNS = ("topic", "partition", "offset", "timestamp", "input")

CONDITION_FAILED, RECORD_FAILED, FUNCTION_FAILED = "condition_failed", "record_failed", "function_failed"
LATE = "late"
"""Reasons that the kernel gives; `formats.decoded` explains them, with all others."""

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


def late_reason(window: Span, closed: int, lateness: int) -> str:
    """Return why a late record is in quarantine.

    Args:
        window: The last of its windows.
        closed: When that was over, in epoch ms.
        lateness: How far its timestamp is behind the time of its partition, in ms.
    """
    return f"{LATE}: {lateness} ms behind its partition; its window {list(window)} was over at {closed}"


def pass_through(
    schema: pa.Schema, rows: pa.RecordBatch, counts: Counts, metric: str = "quarantined"
) -> pa.RecordBatch:
    """Return quarantined rows as they come out of the kernel, and count them.

    Args:
        schema: The kernel's output schema.
        rows: Rows with `input`.
        metric: The name of the count.
    """
    counts[metric] += rows.num_rows
    return fill(schema, QUARANTINED, {name: rows.column(name) for name in _COLUMNS}, rows.num_rows)


def with_reasons(rows: pa.RecordBatch, reasons: Sequence[str]) -> pa.RecordBatch:
    """Return records with the reason of each in its `input`, beside the other fields.

    Args:
        rows: Records with `input`.
        reasons: One per row.
    """
    inputs = inputs_with_reasons(rows.column("input"), pa.array(reasons, pa.string()))
    return with_column(rows, "input", inputs)


def inputs_with_reasons(inputs: pa.StructArray, reasons: pa.StringArray) -> pa.StructArray:
    """Return records in the form of quarantine, each with its reason, or null, in place of the one it has."""
    fields = list(inputs.type)
    parts = [
        reasons.cast(field.type) if field.name == "reason" else pc.struct_field(inputs, field.name)
        for field in fields
    ]
    return pa.StructArray.from_arrays(parts, fields=fields)


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


LATENESS = "lateness"
"""The column that says how far a late record is behind the time of its partition, in ms."""


def late_emissions(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of kind LATE as emissions: their value is the record with `lateness`; null is a late
    deletion.

    Args:
        rows: Rows of `rows.output_schema` with `record`.
    """
    record = rows.column("record")
    behind = pc.subtract(rows.column("at"), rows.column("timestamp"))
    columns = {field.name: pc.struct_field(record, field.name) for field in record.type}
    columns[LATENESS] = pc.if_else(record.is_valid(), behind, None)
    value = pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=record.is_null())
    place = rows.schema.get_field_index("value")
    return rows.set_column(place, pa.field("value", value.type), value)


_TRACED = ("hash", "key", "topic", "partition", "offset", "timestamp")
FATE = "removed"
"""The fate of such a record in a trace, and its metric."""


def without_removed(rows: pa.RecordBatch, counts: Counts) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows that no filter removes; and the others, which are counted, or None.

    A last record that a changed table has joined again is no record of the input, and counts as `rejoined`.

    Example: of two records and one of kind REMOVED the two come back, and `counts["removed"]` is 1 more.
    """
    kind = rows.column("kind")
    # usually there is none, and then nothing is copied
    if pc.index(kind, REMOVED).as_py() < 0:
        return rows, None
    is_removed = pc.equal(kind, REMOVED)
    removed = rows.filter(is_removed)
    rejoined = pc.sum(made_by_tables(removed)).as_py()
    if rejoined:
        counts["rejoined"] += rejoined
    counts[FATE] += removed.num_rows - rejoined
    return rows.filter(pc.invert(is_removed)), removed


def traces_of_removed(schema: pa.Schema, removed: pa.RecordBatch) -> pa.RecordBatch:
    """Return a trace of each removed record, in the kernel's output `schema`."""
    values = pc.fill_null(json_texts(removed.column("value")), "null")
    columns = {name: removed.column(name) for name in _TRACED}
    columns["at"] = pc.max_element_wise(removed.column("time"), removed.column("timestamp"))
    columns["reason"] = pa.repeat(FATE, removed.num_rows)
    columns["trace"] = pc.binary_join_element_wise('{"value":', values, ',"known":[]}', "")
    return fill(schema, TRACE, columns, removed.num_rows)
