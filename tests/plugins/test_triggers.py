"""What a run reads: its interval, or what a person asks for in the form of a trigger."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.batch import Trigger

pytestmark = pytest.mark.airflow

TICK = datetime(2026, 1, 1, 12, 0, tzinfo=timezone.utc)
AFTER = TICK + timedelta(minutes=3)
TICK_MS, AFTER_MS = 1_767_268_800_000, 1_767_268_980_000
HOUR = timedelta(hours=1)
NOTHING = {
    "until": None,
    "until_offsets": None,
    "max_records": None,
    "drain": False,
    "from_start": False,
    "dry_run": False,
}


def run(kind: str = "manual", logical_date: datetime | None = AFTER, **more: Any) -> Any:
    interval = {"data_interval_start": TICK - HOUR, "data_interval_end": TICK}
    if logical_date is None:
        interval = dict.fromkeys(interval)  # type: ignore[arg-type]
    given = {"run_id": "r", "run_type": kind, "run_after": AFTER, "logical_date": logical_date}
    return SimpleNamespace(**(given | interval | more))


def trigger(run: Any, schedule: str | None = "0 * * * *", zone: str = "UTC", **params: Any) -> Trigger:
    from airflow.sdk import DAG, CronDataIntervalTimetable

    from tidegate_airflow.triggers import trigger_of

    timetable = CronDataIntervalTimetable(schedule, timezone=zone) if schedule else None
    dag = DAG("p", schedule=timetable, start_date=TICK)
    return trigger_of({"dag_run": run, "dag": dag, "params": NOTHING | params})


@pytest.mark.parametrize(
    ("kind", "backfill"), [("backfill", True), ("scheduled", False), ("asset_triggered", False)]
)
def test_untriggered_run_has_its_airflow_interval(kind: str, backfill: bool) -> None:
    given = trigger(run(kind, TICK - HOUR))
    assert (given.clock_ms, given.interval_end_ms, given.backfill) == (TICK_MS, TICK_MS, backfill)


@pytest.mark.parametrize(
    "logical_date", [AFTER, TICK, None], ids=["from the form", "on the tick", "from the API"]
)
def test_empty_trigger_reads_all_present_records(logical_date: datetime | None) -> None:
    given = trigger(run(logical_date=logical_date))
    assert (given.clock_ms, given.interval_end_ms) == (AFTER_MS, None)


def test_unscheduled_dag_reads_all_present_records() -> None:
    exact = {"data_interval_start": AFTER, "data_interval_end": AFTER}
    assert trigger(run(**exact), schedule=None).interval_end_ms is None


def test_made_up_interval_is_recognised_in_any_zone() -> None:
    spring = datetime(2026, 3, 29, 10, 0, tzinfo=timezone.utc)
    made_up = run(
        logical_date=spring,
        data_interval_start=datetime(2026, 3, 27, 23, 0, tzinfo=timezone.utc),
        data_interval_end=datetime(2026, 3, 28, 23, 0, tzinfo=timezone.utc),
    )
    assert trigger(made_up, "@daily", "Europe/Berlin").interval_end_ms is None


@pytest.mark.parametrize("logical_date", [TICK - HOUR, AFTER + 5 * HOUR], ids=["its start", "now"])
def test_an_interval_that_a_person_gave_counts(logical_date: datetime) -> None:
    given = trigger(run(logical_date=logical_date))
    assert (given.clock_ms, given.interval_end_ms) == (TICK_MS, TICK_MS)


def test_until_sets_end_and_clock_up_to_trigger() -> None:
    earlier = trigger(run(), until="2026-01-01T12:00:00Z")
    assert (earlier.clock_ms, earlier.interval_end_ms) == (TICK_MS, TICK_MS)
    later = trigger(run(), until="2026-01-01T14:30:00+02:00")
    assert (later.clock_ms, later.interval_end_ms) == (AFTER_MS, TICK_MS + 1_800_000)


def test_trigger_takes_offsets_maximum_and_drain() -> None:
    given = trigger(run(), until_offsets={"stock": {"0": 5, "11": 7}}, max_records=9)
    assert given.until_offsets == {("stock", 0): 5, ("stock", 11): 7}
    assert (given.max_records, given.drain, given.interval_end_ms) == (9, False, None)
    assert trigger(run(), drain=True).drain


@pytest.mark.parametrize("from_start", [False, True])
def test_run_repeats_other_streams_output_on_request(from_start: bool) -> None:
    assert trigger(run(), from_start=from_start).from_start == from_start


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"dryrun": True},
            r"triggered with dryrun, which tidegate does not know. Known are until, until_offsets",
        ),
        ({"until": "tomorrow"}, "'tomorrow', which is no instant with a time zone"),
        ({"until": "2026-01-01T12:00:00"}, "no instant with a time zone"),
        ({"drain": True, "max_records": 5}, "`drain`, which reads nothing, and with max_records"),
    ],
)
def test_invalid_trigger_is_refused_before_planning(params: dict[str, Any], message: str) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=f"{message}.*Nothing was planned"):
        trigger(run(), **params)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("until", ["2026-01-31T00:00:00Z", None], [5]),
        (
            "until_offsets",
            [{"stock": {"0": 1200}}, None],
            [{"stock": 5}, {"stock": {"a": 1}}, {"t": {"0": -1}}],
        ),
        ("max_records", [1, None], [0, "many"]),
        ("drain", [True], ["yes"]),
        ("from_start", [True], [None, "yes"]),
        ("dry_run", [True], [None]),
    ],
)
def test_the_form_takes_what_has_the_right_type(name: str, good: list[Any], bad: list[Any]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    from tidegate_airflow.triggers import run_params

    assert run_params()[name].resolve() == NOTHING[name]
    for value in good:
        assert run_params()[name].resolve(value) == value
    for value in bad:
        with pytest.raises(ParamValidationError):
            run_params()[name].resolve(value)


def test_operator_with_old_date_reads_everything() -> None:
    given = trigger(run("operator_triggered", TICK - 48 * HOUR))
    assert (given.clock_ms, given.interval_end_ms) == (AFTER_MS, None)
