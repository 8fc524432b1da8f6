"""Two at work on one pipeline: at once, and after one that was taken for dead."""

from __future__ import annotations

import pytest

from tests.faults.airflow import LEASE_HELD, NOTHING_TO_DO
from tests.faults.fault import parse_case
from tests.faults.pool import Pool

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long]

TIMES = 30


def test_one_of_two_runs_waits(pool: Pool) -> None:
    delays = [0.15 * (number % 6) for number in range(TIMES)]
    results = pool.overlaps(delays)
    assert len(results) == TIMES
    assert [result for result in results if result.wrong] == []
    assert all(NOTHING_TO_DO in result.codes for result in results)
    assert {code for result in results for code in result.codes} <= {0, NOTHING_TO_DO, LEASE_HELD}
    assert sum(LEASE_HELD in result.codes for result in results) > TIMES / 2


ZOMBIES = [
    "1.compute:manifest.write=pause@1",
    "1.compute:ledger.add_attempt=pause@1",
    "1.commit:ledger.commit=pause@1",
    "2.commit:ledger.commit=pause@1",
    "1.publish:publish.send=pause@2",
    "1.publish:publish.commit=pause@2",
    "1.publish:publish.commit=pause@3",
    "1.publish:sql.connect=pause@1",
    "1.publish:table.append=pause@1",
]


def test_late_zombie_can_neither_commit_nor_publish(pool: Pool) -> None:
    results = pool.run(map(parse_case, ZOMBIES))
    assert {result.case: result.wrong for result in results if result.wrong} == {}
    assert [result.case for result in results if "Fenced" not in result.zombie] == []
