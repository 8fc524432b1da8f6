"""Logs of two keys whose times ascend, and the times between the records of a key in DuckDB."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import duckdb
from hypothesis import strategies as st

from tests.kernel.model import Record

GAPS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1, 4, 9, 10, 11, 30])), max_size=20)
"""Each record's key, and how many ms it comes after the one before."""


def log_of(gaps: Sequence[tuple[str, int]]) -> list[Record]:
    times = itertools.accumulate(gap for _, gap in gaps)
    return [
        Record(key, {"i": at}, "in", 0, offset, at)
        for offset, ((key, _), at) in enumerate(zip(gaps, times, strict=True), 1)
    ]


def in_sql(log: Sequence[Record], condition: str, columns: str) -> list[tuple[Any, ...]]:
    """Return columns of the records that fulfil a condition, sorted.

    A record `b` has `key`, `number`, `ts`, `before` and `after` (the times of its key's neighbours), and
    `next` (the number of its key's next record). `log` has all records.
    """
    if not log:
        return []
    written = ", ".join(f"('{record.key}', {record.offset}, {record.timestamp})" for record in log)
    order = "over (partition by key order by number)"
    query = f"""
        with log(key, number, ts) as (values {written}), neighbours as (
            select *, lag(ts) {order} as before, lead(ts) {order} as after, lead(number) {order} as next
            from log
        )
        select {columns} from neighbours b where {condition}
    """
    return sorted(duckdb.sql(query).fetchall())
