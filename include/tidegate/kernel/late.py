"""Late records as a stream of their own (`on_late: emit`): what sinks get of them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

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
