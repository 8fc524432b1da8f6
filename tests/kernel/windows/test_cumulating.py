"""Cumulating windows: as Flink's CUMULATE, with a final result only if it changed; and as SQL over it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import Case
from tidegate.kernel.windows import Cumulating
from tidegate.model.zones import time_zone

HOUR = 3_600_000
DAY = 24 * HOUR
REDUCE = {"n": "count(*)", "most": "max(x)"}


def case(reduce: dict[str, str] | None = None, grace: str = "0ms", **emit: Any) -> Case:
    window = {"cumulating": "30ms", "every": "10ms", "grace": grace}
    emit = {"on": "window_close", "clock": "stream", **emit}
    return Case({"name": "out", "reduce": reduce or REDUCE, "window": window, "emit": emit})


def records(*pairs: tuple[float, int]) -> list[Record]:
    return [
        Record("k", {"x": float(x), "s": "p", "i": 1, "d": None, "m": None}, "in", 0, offset, at, None, 0)
        for offset, (x, at) in enumerate(pairs, start=1)
    ]


def run(stage: Case, log: Sequence[Record], cuts: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    kernel = Kernel(stage)
    for start, end in pairwise([0, *cuts, len(log)]):
        kernel.apply(Batch(tuple(log[start:end])))
    return [(e.window, *(e.value or {}).values()) for e in kernel.emissions]


def test_windows_of_a_record_become_longer() -> None:
    assert Cumulating(30, 10).spans(17) == ((0, 20), (0, 30))
    assert Cumulating(30, 10).spans(30) == ((30, 40), (30, 50), (30, 60))
    assert Cumulating(30, 10, offset_ms=5).spans(17) == ((5, 25), (5, 35))


def test_hours_of_a_local_day_cumulate_to_it() -> None:
    window = Cumulating(DAY, HOUR, 0, time_zone("Europe/Berlin"))
    midnight = 1_792_879_200_000  # 2026-10-25, a day of 25 hours
    spans = window.spans(midnight)
    assert [(end - start) // HOUR for start, end in spans] == list(range(1, 26))
    assert window.windows_per_record == 25


def test_final_result_is_emitted_only_if_it_changed() -> None:
    log = records((1, 2), (2, 4), (1, 25), (0, 70))
    assert run(case(), log) == [((0, 10), 2, 2.0), ((0, 30), 3, 2.0)]
    assert run(case({"most": "max(x)"}), log) == [((0, 10), 2.0)]


def test_each_period_starts_anew() -> None:
    log = records((1, 2), (1, 32), (0, 70))
    assert run(case(), log) == [((0, 10), 1, 1.0), ((30, 40), 1, 1.0)]


def test_last_result_is_known_to_later_batches() -> None:
    first, *later = records((1, 2), (0, 12), (0, 24), (0, 99))
    log = [first, *(replace(record, key="other") for record in later)]
    stage = case({"most": "max(x)"})
    for cuts in ((), (1, 2, 3)):
        assert run(stage, log, cuts)[0] == ((0, 10), 1.0)
        assert [row for row in run(stage, log, cuts) if row[0] in ((0, 20), (0, 30)) and row[1] == 1] == []


def test_later_record_waits_for_its_window() -> None:
    log = records((1, 2), (7, 12), (2, 4), (0, 99))
    assert run(case(grace="5ms"), log) == [((0, 10), 2, 2.0), ((0, 20), 3, 7.0)]


def test_update_emits_each_window_of_a_record() -> None:
    emitted = run(case(on="update"), records((1, 12), (2, 25)))
    assert [row[:2] for row in emitted] == [((0, 20), 1), ((0, 30), 1), ((0, 30), 2)]


SQL = """
WITH steps AS (SELECT DISTINCT ms // 30 * 30 AS start, unnest([10, 20, 30]) AS size FROM log),
results AS (
    SELECT start, start + size AS "end", count(*) AS n, max(x) AS most
    FROM steps JOIN log ON ms >= start AND ms < start + size GROUP BY ALL
)
SELECT start, "end", n, most FROM results
QUALIFY (n, most) IS DISTINCT FROM lag((n, most)) OVER (PARTITION BY start ORDER BY "end")
ORDER BY start, "end"
"""


@examples(20)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), min_size=1, max_size=12), st.data())
def test_results_are_those_of_sql(drawn: list[tuple[int, int]], data: st.DataObject) -> None:
    log = sorted(drawn, key=lambda record: record[1])
    cuts = sorted(data.draw(st.sets(st.integers(0, len(log)), max_size=3)))
    emitted = run(case(), records(*log, (0, 1000)), cuts)
    with duckdb.connect() as database:
        database.execute("CREATE TABLE log (x DOUBLE, ms BIGINT)")
        database.executemany("INSERT INTO log VALUES (?, ?)", log)
        expected = database.execute(SQL).fetchall()
    assert emitted == [((start, end), n, most) for start, end, n, most in expected]
