"""List the newest quarantined records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.app.manifests import batch_named, needed_by
from tidegate.app.root import App
from tidegate.errors import SettingsInvalid
from tidegate.lake.manifest import DataFile
from tidegate.lake.quarantine_files import POSITION, QUARANTINE, RowCondition, RowGroup, row_groups
from tidegate.lake.store import Store
from tidegate.ledger import Stream
from tidegate.quarantine.store import ALL, QuarantineFilter, quarantine_batches

_PLACE = ("file", "group", "row")
_PLACES = pa.schema(
    [*(QUARANTINE.field(name) for name in POSITION), *((name, pa.int64()) for name in _PLACE)]
)
"""A record's position in Kafka, and its place: the number of the file in its batch, of the row group in the
file, and of the row in the row group.
"""


def list_quarantine(
    app: App, stream: Stream, where: QuarantineFilter = ALL, limit: int = 50, max_bytes: int | None = None
) -> Iterator[pa.Table]:
    """Yield at most `limit` records, the newest batch first; the records of a batch are sorted by
    position.

    Each table has rows of one batch, with the columns of `QUARANTINE`. Positions are read
    first; values are read only from row groups with a chosen record, and older batches only if the newer ones
    have too few records.

    Args:
        max_bytes: Longer keys and values are cut to this length; None does not cut.

    Raises SettingsInvalid for a limit below 1; LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    if limit < 1:
        raise SettingsInvalid(f"A list of {limit} records has none", "Ask for 1 or more.")
    for seq, files in quarantine_batches(app, stream, where, newest_first=True):
        with needed_by(batch_named(stream, seq)):
            store = app.lake(stream).store
            places = _first_places(store, files, where.condition, limit)
            rows = _rows_at(store, files, places, max_bytes)
        limit -= rows.num_rows
        if rows.num_rows:
            yield rows
        if not limit:
            return


def _first_places(store: Store, files: Sequence[DataFile], condition: RowCondition, limit: int) -> pa.Table:
    """Return the places of the first `limit` records of a batch by position; records with the same
    position by place.
    """
    places = _PLACES.empty_table()
    for number, file in enumerate(files):
        for group in row_groups(store, file, condition):
            rows = _places_in(number, group, condition)
            places = pa.concat_tables([places, rows])
            # cut after each row group, so memory holds `limit` places at most
            places = places.sort_by([(name, "ascending") for name in _PLACES.names]).slice(0, limit)
    return places


def _places_in(file: int, group: RowGroup, condition: RowCondition) -> pa.Table:
    rows = group.matching(condition, POSITION)
    numbers = {"file": file, "group": group.number}
    columns = [
        pa.repeat(pa.scalar(numbers[name], pa.int64()), rows.num_rows) if name in numbers else rows[name]
        for name in _PLACES.names
    ]
    return pa.table(columns, schema=_PLACES)


def _rows_at(store: Store, files: Sequence[DataFile], places: pa.Table, max_bytes: int | None) -> pa.Table:
    """Return the rows at these places, in the order of the places. Each row group is read once."""
    parts = [(QUARANTINE.empty_table(), pa.array([], pa.int64()))]
    order = pa.array(range(places.num_rows), pa.int64())
    for number in pc.unique(places["file"]).to_pylist():
        of_file = pc.equal(places["file"], number)
        groups = set(places["group"].filter(of_file).to_pylist())
        for group in row_groups(store, files[number], RowCondition()):
            if group.number in groups:
                chosen = pc.and_(of_file, pc.equal(places["group"], group.number))
                rows = group.read(QUARANTINE.names).take(places["row"].filter(chosen))
                parts.append((_cut(rows, max_bytes), order.filter(chosen)))
    rows = pa.concat_tables([rows for rows, _ in parts])
    return rows.take(pc.sort_indices(pa.chunked_array([numbers for _, numbers in parts])))


def _cut(rows: pa.Table, max_bytes: int | None) -> pa.Table:
    """Return the rows with keys and values of at most `max_bytes` bytes."""
    if max_bytes is None:
        return rows
    for name in ("key", "value"):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pc.binary_slice(rows[name], 0, max_bytes))
    return rows
