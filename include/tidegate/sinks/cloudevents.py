"""The attributes of emissions as events of CloudEvents 1.0, for sinks of each kind."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.formats.cloudevents import VERSION
from tidegate.model.cloudevents import CloudEvents
from tidegate.sinks.outbox import POSITION, Outbox
from tidegate.storage.schema import KEY, TIMESTAMP, WINDOW, window_columns

COLUMNS = (KEY, TIMESTAMP, *WINDOW, POSITION)
"""The columns of an outbox that attributes are made of."""
_DATA_TYPE = "application/json"
_INSTANT = pa.timestamp("us", "UTC")


def event_attributes(
    declared: CloudEvents, outbox: Outbox, emissions: pa.RecordBatch, has_data: pa.BooleanArray
) -> Mapping[str, pa.Array]:
    """Return the attributes of emissions, by name.

    The `id` is the stream, the batch and the place in the batch's outbox. It is the same whenever, and by
    whichever sink of the stage, the emission is sent.

    Args:
        emissions: with COLUMNS.
        has_data: false for deletions, whose data has no type.
    """
    stage = outbox.stage.name if outbox.stage is not None else ""
    pipeline, number = outbox.plan.stream.pipeline, emissions.num_rows
    position = emissions.column(POSITION).cast(pa.string())
    attributes = {
        "specversion": pa.repeat(VERSION, number),
        "id": pc.binary_join_element_wise(f"{outbox.plan.stream}/{outbox.plan.seq}", position, "/"),
        "source": pa.repeat(declared.source or f"/tidegate/{pipeline}/{stage}", number),
        "type": pa.repeat(declared.type or f"tidegate.{pipeline}.{stage}", number),
        "subject": emissions.column(KEY),
        "time": _instants(emissions.column(TIMESTAMP)),
        "datacontenttype": pc.if_else(has_data, _DATA_TYPE, pa.scalar(None, pa.string())),
    }
    # An extension's name has lower-case letters and digits only, and its integers have 32 bits.
    for name in window_columns(outbox.stage is not None and outbox.stage.window is not None):
        attributes[name.replace("_", "")] = _instants(emissions.column(name))
    return attributes


def _instants(milliseconds: pa.Int64Array) -> pa.TimestampArray:
    return pc.multiply(milliseconds, 1000).cast(_INSTANT)
