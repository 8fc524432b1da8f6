"""State beside a batch: the same decisions as when it stands among the rows, in steps of any size."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernel.rows_for_tests import SCHEMA, Record, key_hash, record_row, sorted_batches
from tidegate import kernel
from tidegate.kernel.decision import with_state

KEYS = ["a", "b", "c", "d", "e"]
BY_KEY = kernel.BY_KEY
# two keys of one hash, in either order, and one before and after them
COLLIDING = {"a": -7, "b": 3, "c": 3, "d": 3, "e": 2**63 - 1}


class Prior:
    """A `kernel.PriorState` over rows at hand; those of `due` fire. `step`: hashes that a `take` may span."""

    last_hash = 2**63 - 1

    def __init__(self, rows: list[dict[str, Any]], due: set[str], step: int) -> None:
        self._rows = sorted(rows, key=lambda row: (row["hash"], row["key"]))
        self._due = due
        self._step = step
        self._after = -(2**63) - 1

    def next_bound(self, up_to: int) -> int:
        ahead = sorted({row["hash"] for row in self._rows if self._after < row["hash"] <= up_to})
        return ahead[self._step - 1] if len(ahead) > self._step else up_to

    def take(self, hashes: np.ndarray, up_to: int, only_keys: pa.StringArray | None) -> pa.RecordBatch:
        keys = [None] * len(hashes) if only_keys is None else only_keys.to_pylist()
        only_key = dict(zip(hashes.tolist(), keys, strict=True))

        def is_requested(row: dict[str, Any]) -> bool:
            return row["hash"] in only_key and only_key[row["hash"]] in (None, row["key"])

        chosen = [
            row
            for row in self._rows
            if self._after < row["hash"] <= up_to and (is_requested(row) or row["key"] in self._due)
        ]
        self._after = up_to
        return pa.RecordBatch.from_pylist(chosen, SCHEMA)


def state_row(key: str, value: float, hash_: int) -> dict[str, Any]:
    return record_row(Record(key, None, 0, -1, 0)) | {
        "kind": kernel.STATE,
        "hash": hash_,
        "turn": -1,
        "updated_seq": 1,
        "live": True,
        "accumulator": {"a": value, "b": None},
        "emitted": {"a": value, "b": None},
    }


records = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 2)), max_size=12)


@given(
    records,
    st.sets(st.sampled_from(KEYS)),
    st.sets(st.sampled_from(KEYS)),
    st.integers(1, 3),
    st.integers(1, 4),
    st.booleans(),
)
def test_separate_state_equals_state_among_rows(
    given_records: list[tuple[str, int]],
    stored_keys: set[str],
    due: set[str],
    step: int,
    arrow_rows: int,
    collide: bool,
) -> None:
    hashes = COLLIDING if collide else {key: key_hash(key) for key in KEYS}
    rows = [
        record_row(Record(key, {"a": float(value), "b": None}, 0, number, number)) | {"hash": hashes[key]}
        for number, (key, value) in enumerate(given_records)
    ]
    state = [state_row(key, 1.0, hashes[key]) for key in sorted(stored_keys)]
    stage = kernel.Stage(kernel.Latest(), kernel.Change(("a", "b")))
    among = kernel.decide(stage, sorted_batches([*state, *rows], arrow_rows))
    beside = kernel.decide(stage, sorted_batches(rows, arrow_rows), prior=Prior(state, due, step))
    assert decisions(beside) == decisions(among)


def test_two_keys_of_one_hash_find_their_state() -> None:
    """The second key's value is the one that it has; without its state it would be new."""
    rows = [
        record_row(Record(key, {"a": 1.0, "b": None}, 0, number, number)) | {"hash": COLLIDING[key]}
        for number, key in enumerate("bc")
    ]
    stage = kernel.Stage(kernel.Latest(), kernel.Change(("a", "b")))
    prior = Prior([state_row("c", 1.0, COLLIDING["c"])], set(), 1)
    decided, counts = decisions(kernel.decide(stage, sorted_batches(rows, 4), prior=prior))
    assert [key for kind, key, *_ in decided if kind == kernel.EMISSION] == ["b"]
    assert counts["idempotent-update-skip"] == 1


@given(st.sets(st.sampled_from(KEYS)), st.integers(1, 3))
def test_state_without_records_comes_where_its_timer_fires(due: set[str], step: int) -> None:
    state = [state_row(key, 1.0, COLLIDING[key]) for key in KEYS]
    prior = Prior(state, due, step)
    given_rows = sorted_batches([record_row(Record("c", None, 0, 1, 1)) | {"hash": 3}], 3)
    rows = [row for batch in with_state(given_rows, prior, BY_KEY, ("key",)) for row in batch.to_pylist()]
    assert [row["key"] for row in rows if row["kind"] == kernel.STATE] == sorted({*due, "b", "c", "d"})
    assert [row["hash"] for row in rows] == sorted(row["hash"] for row in rows)


@pytest.mark.parametrize("step", [1, 2])
def test_each_state_row_is_read_once_across_batches(step: int) -> None:
    prior = Prior([state_row(key, 1.0, COLLIDING[key]) for key in KEYS], set(KEYS), step)
    batches = [
        pa.RecordBatch.from_pylist(
            [record_row(Record(key, None, 0, 1, 1)) | {"hash": COLLIDING[key]}], SCHEMA
        )
        for key in ("a", "e")
    ]
    rows = [row for batch in with_state(batches, prior, BY_KEY, ("key",)) for row in batch.to_pylist()]
    assert sorted(row["key"] for row in rows if row["kind"] == kernel.STATE) == KEYS


def decisions(batches: Any) -> list[Any]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    decided = [
        (row["kind"], row["key"], row["offset"], row["ordinal"], str(row["value"]), row["reason"])
        for row in rows
        if row["kind"] in (kernel.EMISSION, kernel.STATE)
    ]
    counts = kernel.Counts()
    for row in rows:
        if row["kind"] == kernel.COUNTS:
            counts.include(json.loads(row["counts"]))
    return [sorted(decided, key=str), {name: number for name, number in counts.items() if number}]
