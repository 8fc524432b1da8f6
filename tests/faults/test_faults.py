"""A sample of the kill matrix. The whole of it: `make faults`."""

from __future__ import annotations

import os

import pytest

from tests.faults.catalogue import (
    NOT_OF_A_BATCH,
    all_cases,
    connected_cases,
    failpoint_names,
    joined,
    matrix,
    sample,
)
from tests.faults.fault import PLAIN, Case, case_text, parse_case
from tests.faults.history import CONNECTED, POSTED
from tests.faults.pool import Pool

FAULTS, IN_A_SERVER = 2, 1


def test_there_are_at_least_sixty_failpoints() -> None:
    assert len(failpoint_names()) >= 60


def test_a_case_is_written_as_it_is_read() -> None:
    for text in (
        "1.publish:publish.commit=kill@2",
        "doctor/2.gap:ledger.accept_gap=lose@1",
        "connected_rich/1.compute:compute.files=hang_server_after@2",
    ):
        both = f"{text}+{text}"
        assert case_text(parse_case(both)) == both


def test_joined_cases_try_every_fault_once() -> None:
    cases = all_cases({(batch, step): {"commit": 1} for batch in (1, 2, 3) for step in ("plan", "publish")})
    runs = joined(cases)
    assert sorted(str(fault) for run in runs for fault in run) == sorted(
        str(fault) for case in cases for fault in case
    )
    assert len(runs) < len(cases)
    for run in runs:
        assert len({fault.entry for fault in run}) == len(run)
        assert [fault.half for fault in run] == sorted(fault.half for fault in run)
        assert all(fault.action != "pause" for fault in run[:-1])


@pytest.mark.broker
@pytest.mark.spark
def test_the_histories_meet_every_failpoint(pool: Pool) -> None:
    met = {case[0].name for case in matrix(all_cases(pool.hits), at_least=0)}
    expected = failpoint_names() - NOT_OF_A_BATCH
    only_met, only_expected = met - expected, expected - met
    assert not only_met
    assert not only_expected


@pytest.mark.broker
@pytest.mark.spark
def test_faults_and_retries_leave_no_trace(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [case for case in all_cases(pool.hits) if case[0].history in (PLAIN, POSTED)]
    assert_nobody_can_tell(pool, cases, FAULTS, capsys)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.long
def test_lost_server_or_step_changes_nothing(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    connected = [case for case in connected_cases() if case[0].history == CONNECTED and len(case) == 1]
    assert_nobody_can_tell(pool, connected, IN_A_SERVER, capsys)


def assert_nobody_can_tell(
    pool: Pool, cases: list[Case], faults: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Require that this many cases of a sample leave no trace."""
    seed = int(os.environ.get("TIDEGATE_FAULT_SEED", 1))
    with capsys.disabled():
        print(f"\n{faults} faults of the kill matrix: TIDEGATE_FAULT_SEED={seed}")
    results = pool.run(joined(sample(cases, faults, seed)))
    assert sum(len(result.fired) for result in results) == faults
    wrong = [f"--only '{result.case}': {result.wrong}" for result in results if result.wrong]
    assert not wrong, f"TIDEGATE_FAULT_SEED={seed}; python -m tests.faults --jobs 1 " + "\n".join(wrong)
