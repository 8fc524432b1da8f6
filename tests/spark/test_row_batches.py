"""Rows that go to their tasks in row batches come out as they went in, in the order of their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernel.keys import LEAST_HASH
from tidegate.spark import row_batches
from tidegate.spark.row_batches import RowBatches, rows_in
from tidegate.spark.shuffle import REPORT, TO, Slots

COLUMNS = pa.schema(
    [
        ("hash", pa.int64()),
        ("key", pa.string()),
        ("offset", pa.int64()),
        ("value", pa.struct([("note", pa.string())])),
        ("input", pa.struct([("value", pa.binary())])),
        (REPORT, pa.string()),
        (TO, pa.int32()),
    ]
)
# neighbours, and hashes of all slots
HASHES = st.integers(-3, 3) | st.integers(LEAST_HASH + 1, 2**63 - 1)
ROWS = st.tuples(HASHES, st.none() | st.text(max_size=3), st.none() | st.text(max_size=40))
BATCHES = st.lists(st.tuples(st.integers(0, 1), st.lists(ROWS, max_size=8)), max_size=8)


def _rows(number: int, rows: Sequence[tuple[int, str | None, str | None]], first: int) -> pa.RecordBatch:
    records = [
        {
            "hash": hash_,
            "key": key,
            "offset": first + place,
            "value": None if note is None else {"note": note},
            TO: number,
        }
        for place, (hash_, key, note) in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(records, COLUMNS)


@given(
    batches=BATCHES, slots=st.integers(1, 5), sizes=st.tuples(st.integers(1, 30), *[st.integers(1, 900)] * 2)
)
def test_each_task_gets_its_rows_in_order(
    batches: list[tuple[int, list[tuple[int, str | None, str | None]]]],
    slots: int,
    sizes: tuple[int, int, int],
) -> None:
    made = [_rows(number, rows, 100 * place) for place, (number, rows) in enumerate(batches)]
    most, of_batch, merged = sizes
    with patch.multiple(row_batches, _MOST_ROWS=most, _BATCH_BYTES=of_batch, _MERGED_BYTES=merged):
        sent = list(RowBatches(Slots(slots))(made))
        for task in range(2 * slots):
            number, slot = divmod(task, slots)
            own = [part for part in sent if part.column(TO)[0].as_py() == task]
            # as Spark sorts them; those of one hash come in any order
            own.sort(key=lambda part: (part.column("hash")[0].as_py(), hash(part.column("rows")[0].as_py())))
            received = [row for part in rows_in(own, COLUMNS) for row in part.to_pylist()]
            expected = [
                {**row, TO: None}
                for rows in made
                for row in rows.to_pylist()
                if row[TO] == number and _is_within(row["hash"], Slots(slots), slot)
            ]
            hashes = [row["hash"] for row in received]
            assert hashes == sorted(hashes)
            assert sorted(received, key=_offset) == sorted(expected, key=_offset)


def _is_within(hash_: int, slots: Slots, slot: int) -> bool:
    first, last = slots.range(slot)
    return first <= hash_ <= last


def _offset(row: dict[str, int]) -> int:
    return row["offset"]


def test_task_without_rows_gets_an_empty_batch() -> None:
    (rows,) = rows_in([], COLUMNS)
    assert rows.num_rows == 0
    assert rows.schema == COLUMNS


def test_task_holds_one_range_per_slice() -> None:
    width = 2**64 // 4_000
    wide = [(LEAST_HASH + 1 + number * width, None, "x" * 10_000) for number in range(4_000)]
    sent = [part for _ in range(3) for part in RowBatches(Slots(1))([_rows(0, wide, 0)])]
    sent.sort(key=lambda part: int(part.column("hash")[0].as_py()))
    received = list(rows_in(sent, COLUMNS))
    assert sum(part.num_rows for part in received) == 3 * len(wide)
    assert max(part.nbytes for part in received) < 12 * 1024 * 1024


def test_columns_without_values_do_not_travel() -> None:
    (part,) = RowBatches(Slots(1))([_rows(0, [(1, "a", None)], 0)])
    content = pa.ipc.open_stream(part.column("rows")[0].as_buffer())
    assert content.schema.names == ["hash", "key", "offset"]
