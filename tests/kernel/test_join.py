"""`join`: records of two sides are paired if their timestamps are close, and the others wait until their time
is over.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.joins_for_tests import Emitted, JoinKernel, JoinRecord, join, naive
from tidegate import kernel
from tidegate.kernel.strategies.join import Joined
from tidegate.model.condition import read_condition

HISTORIES = Path(__file__).parents[1] / "conformance" / "joins" / "kafka-streams.jsonl"
KINDS = ("inner", "left", "outer")


def left(value: int | None, timestamp: int, key: str = "a", place: int = 0) -> JoinRecord:
    return JoinRecord("left", key, value, timestamp, place)


def right(value: int | None, timestamp: int, key: str = "a", place: int = 0) -> JoinRecord:
    return JoinRecord("right", key, value, timestamp, place)


def decided(rule: kernel.Join, *batches: Sequence[JoinRecord], **options: Any) -> JoinKernel:
    """The kernel after these batches."""
    kernel_ = JoinKernel(rule, **options)
    for batch in batches:
        kernel_.apply(batch)
    return kernel_


def emitted(rule: kernel.Join, *batches: Sequence[JoinRecord]) -> list[tuple[Any, ...]]:
    """Values, timestamp and reason of what goes out."""
    return [
        (emission.left, emission.right, emission.timestamp, emission.reason)
        for emission in decided(rule, *batches).emissions
    ]


def test_pair_has_the_larger_timestamp() -> None:
    assert emitted(join(), [left(1, 5), right(2, 12)]) == [(1, 2, 12, "matched")]
    assert emitted(join(), [right(2, 12), left(1, 5)]) == [(1, 2, 12, "matched")]


def test_record_matches_all_of_the_other_side() -> None:
    log = [left(1, 5), left(2, 5), right(3, 8), left(4, 9)]
    pairs = [(1, 3, 8, "matched"), (2, 3, 8, "matched"), (4, 3, 9, "matched")]
    assert emitted(join(), log) == emitted(join(), *([record] for record in log)) == pairs


def test_bounds_of_the_window_match() -> None:
    rule = join(before=2, after=5)
    log = [left(1, 10), right(2, 7), right(3, 8), right(4, 15), right(5, 16)]
    assert [pair[1] for pair in emitted(rule, log)] == [3, 4]


def test_left_join_emits_unmatched_when_over() -> None:
    log = [left(1, 5), right(2, 6, key="b"), left(3, 15, key="c")]
    assert emitted(join("left"), log) == []
    (emission,) = decided(join("left"), log, [left(4, 16, key="c")]).emissions
    assert emission == Emitted("a", 1, None, 5, 16, "unmatched")


def test_outer_join_emits_both_sides() -> None:
    log = [left(1, 5), right(2, 6, key="b"), left(3, 40, key="c")]
    assert emitted(join("outer"), log) == [(1, None, 5, "unmatched"), (None, 2, 6, "unmatched")]
    assert emitted(join("inner"), log) == []


def test_grace_lets_a_late_match_through() -> None:
    log = [left(1, 5), left(9, 18, key="z"), right(2, 14)]
    assert emitted(join("left"), log)[0] == (1, None, 5, "unmatched")
    assert emitted(join("left", grace=5), log)[0] == (1, 2, 14, "matched")


def test_late_record_is_dropped_and_counted() -> None:
    log = [left(1, 100), right(2, 80)]
    kernel_ = decided(join("outer"), log)
    assert kernel_.emissions == []
    assert (kernel_.counts["expired-window-record-drop"], kernel_.counts["used"]) == (1, 1)


def test_late_record_goes_into_quarantine() -> None:
    kernel_ = decided(join(), [left(1, 100), right(2, 80)], on_late="quarantine")
    assert kernel_.quarantined == ["late: 20 ms behind its partition; it could match others up to 90"]
    assert kernel_.counts["late-quarantined"] == 1


def test_deletions_are_ignored_and_counted() -> None:
    kernel_ = decided(join("outer"), [left(None, 5), right(None, 6), left(1, 7)])
    assert (kernel_.counts["tombstones"], kernel_.counts["used"], len(kernel_.state)) == (2, 3, 1)


def test_state_ends_with_the_window() -> None:
    kernel_ = decided(join("left"), [left(1, 5), right(2, 6), left(3, 7, key="b")])
    assert len(kernel_.state) == kernel_.counts["state-rows"] == 3
    kernel_.apply([left(4, 500, key="z")])
    assert [row["key"] for row in kernel_.state.values()] == ["z"]
    assert kernel_.counts["state-rows"] == 1
    assert kernel_.counts["suppression-buffer-records"] == 1


def test_clock_of_the_run_ends_idle_keys() -> None:
    kernel_ = JoinKernel(join("left", clock="run"))
    kernel_.apply([left(1, 5)], clock=15)
    assert kernel_.emissions == []
    kernel_.apply([], clock=16)
    assert kernel_.emissions == [Emitted("a", 1, None, 5, 16, "unmatched")]


def test_condition_excludes_pairs_and_records() -> None:
    where = read_condition("l > 1", None)
    kernel_ = decided(join("left"), [left(1, 5), right(7, 6), left(2, 6), left(9, 99)], where=where)
    assert [(pair.left, pair.right) for pair in kernel_.emissions] == [(2, 7)]
    assert kernel_.counts["filtered"] == 1


def test_traces_tell_fates_and_waiting_records() -> None:
    kernel_ = decided(join("left"), [left(1, 5), right(2, 6, key="b"), right(3, 7)], trace=True)
    assert sorted(fate for fate, _ in kernel_.traces) == ["held", "matched", "unpaired"]
    (text,) = [text for fate, text in kernel_.traces if fate == "matched"]
    assert json.loads(text) == {
        "value": {"side": "right", "l": None, "r": 3},
        "known": [{"side": "left", "timestamp": 5, "held": 1, "due": 16}],
    }


@st.composite
def histories(draw: st.DrawFn, disorder: int = 30) -> list[JoinRecord]:
    """Records of a few keys; their timestamps rise, and are up to `disorder` ms out of order."""
    records: list[JoinRecord] = []
    time = 50
    for number in range(draw(st.integers(1, 25))):
        time += draw(st.sampled_from([0, 1, 2, 5, 30]))
        side: Literal["left", "right"] = draw(st.sampled_from(["left", "right"]))
        value = None if draw(st.integers(0, 9)) == 0 else number
        timestamp = time - draw(st.integers(0, disorder))
        records.append(JoinRecord(side, draw(st.sampled_from("abc")), value, timestamp))
    return records


rules = st.builds(
    join, st.sampled_from(KINDS), st.integers(0, 12), st.integers(0, 12), st.sampled_from([0, 3, 20])
)


@given(rules, histories(), st.lists(st.integers(0, 25), max_size=5))
@examples(120)
def test_same_as_the_naive_model_however_cut(
    rule: kernel.Join, records: list[JoinRecord], cuts: list[int]
) -> None:
    bounds = [0, *sorted({cut for cut in cuts if cut < len(records)} - {0}), len(records)]
    kernel_ = decided(rule, *(records[start:end] for start, end in pairwise(bounds)))
    assert [row for rows in kernel_.by_key().values() for row in rows] == naive(rule, records)
    fates = ("used", "expired-window-record-drop", "deduplicated")
    assert sum(kernel_.counts[fate] for fate in fates) == len(records)
    assert kernel_.counts["state-rows"] == len(kernel_.state)


_SQL = """
    SELECT l.key, l.value, r.value FROM l {kind} JOIN r
    ON l.key = r.key AND r.timestamp BETWEEN l.timestamp - {before} AND l.timestamp + {after}
"""


@given(rules, histories(disorder=0))
@examples(25)
def test_same_as_sql_over_the_whole_history(rule: kernel.Join, records: list[JoinRecord]) -> None:
    kernel_ = decided(rule, [*records, left(99, 10_000, key="z")])
    with duckdb.connect() as connection:
        for side, table in (("left", "l"), ("right", "r")):
            connection.execute(f"CREATE TABLE {table} (key VARCHAR, value BIGINT, timestamp BIGINT)")
            rows = [record[1:4] for record in records if record.side == side and record.value is not None]
            if rows:
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        kind = "FULL" if rule.kind == "outer" else rule.kind
        sql = _SQL.format(kind=kind, before=rule.before_ms, after=rule.after_ms)
        # one key is null where there is no match
        expected = Counter(row[1:] for row in connection.execute(sql).fetchall())
    assert Counter((emission.left, emission.right) for emission in kernel_.emissions) == expected


@pytest.mark.parametrize("number", range(45))
def test_same_as_kafka_streams(number: int) -> None:
    history = json.loads(HISTORIES.read_text().splitlines()[number])
    rule = join(history["kind"], history["before"], history["after"], history["grace"])
    records = [
        JoinRecord("right" if row["side"] else "left", row["key"], row["value"], row["timestamp"])
        for row in history["input"]
    ]
    expected = [Emitted(row["key"], *row["value"], row["timestamp"], 0, "") for row in history["output"]]
    assert expected
    assert _comparable(decided(rule, records).emissions) == _comparable(expected)


def _comparable(emissions: Sequence[Emitted]) -> list[tuple[Any, ...]]:
    """Return key, values and timestamp: the pairs of a key in order, what has no match by its timestamp.

    Kafka Streams looks for records without a match only with some of its records, so they come out later. The
    key `z` lets time pass.
    """
    pairs = [(row.key, 0, row.left, row.right, row.timestamp) for row in emissions if None not in row[1:3]]
    alone = [(row.key, row.timestamp, row.left, row.right) for row in emissions if None in row[1:3]]
    return [
        row for row in (*sorted(pairs, key=lambda row: row[0]), *sorted(alone, key=repr)) if row[0] != "z"
    ]


def test_state_shows_the_side_of_each_record() -> None:
    kernel_ = decided(join("outer"), [left(1, 10), right(2, 11, key="other")])
    rows = [
        {"key": row["key"], "window_start": row["window_start"], "window_end": 0, "value": row["accumulator"]}
        for row in kernel_.state.values()
    ]
    shown = Joined().shown(pa.Table.from_pylist(rows)).to_pylist()
    assert sorted(shown, key=lambda row: row["key"]) == [
        {"key": "a", "side": "left", "value": {"l": 1, "r": None}},
        {"key": "other", "side": "right", "value": {"l": None, "r": 2}},
    ]
