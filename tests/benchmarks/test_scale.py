"""What a cluster needs follows from the saved rows."""

from __future__ import annotations

from typing import Any

import click
import pytest
from benchmarks.measure import Usage
from benchmarks.programs import Run
from benchmarks.scale import LARGE, SMALL, STATE, Costs, need
from benchmarks.turns import Row, Turn, row_object

COSTS = Costs(per_event=5e-6, per_key=2e-7, per_check=1e-6, per_message=3e-6, emitted=0.1)


def _saved(name: str, runs: dict[str, Run], bound: float | None = 1.0) -> dict[str, Any]:
    row = Row("", tuple(runs), tuple(Turn(program, 1, run) for program, run in runs.items()))
    return {"name": name, "bound": bound, "machine": "", **row_object(row)}


def _run(cpu: float, emitted: int = 0, alone: float = 0.0) -> Run:
    return Run(
        Usage(1.0, cpu, 1, 1), emitted, {"compute": 1.0, "validate": alone / 4, "publish": alone * 3 / 4}
    )


def _rows() -> list[dict[str, Any]]:
    return [
        _saved(SMALL, {"tidegate run": _run(60.0, 1_000_000, 5.0), "peer": _run(1.0)}),
        _saved(LARGE, {"tidegate run": _run(160.0, 3_000_000, 13.0), "peer": _run(1.0)}),
        _saved(STATE, {"10,000,000 keys": _run(24.0), "100,000 keys": _run(21.03)}, None),
    ]


def test_costs_come_from_the_larger_batch() -> None:
    costs = Costs.from_rows(_rows())
    assert vars(costs) == pytest.approx(vars(COSTS) | {"per_key": 3e-7})


def test_missing_or_unlike_row_is_reported() -> None:
    with pytest.raises(click.ClickException, match="There is no row large-state"):
        Costs.from_rows(_rows()[:2])
    rows = _rows()
    rows[0]["bound"] = None
    with pytest.raises(click.ClickException, match="10m was measured with another load"):
        Costs.from_rows(rows)


def test_state_costs_the_same_for_short_batches() -> None:
    minute, hour = (need(COSTS, 1e9, 1e5, seconds) for seconds in (60, 3_600))
    assert (minute.of_state, hour.of_state) == pytest.approx((200.0, 200.0))
    assert (minute.of_events, hour.of_events) == pytest.approx((30.0, 1_800.0))
    assert minute.alone == pytest.approx(2.4)
    # Tasks send what is much: 36,000,000 emissions an hour.
    assert (minute.of_messages, hour.of_messages) == pytest.approx((0.0, 108.0))
    # 230 processor seconds in half a minute but 2.4 seconds; 2,108 in half an hour but 36 seconds
    assert (minute.cores, hour.cores) == (9, 2)


def test_pipelines_share_keys_and_events() -> None:
    whole, half = need(COSTS, 1e9, 1e5, 60), need(COSTS, 1e9, 1e5, 60, pipelines=2)
    assert (half.events, half.of_state) == (whole.events // 2, whole.of_state / 2)


def test_checking_process_limits_the_cores() -> None:
    assert need(COSTS, 1e6, 2e6, 60).cores is not None
    assert need(COSTS, 1e6, 5e6, 60).cores is None
