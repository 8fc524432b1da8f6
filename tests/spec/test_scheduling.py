"""When runs are started: time zone, first day, catching up."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tests.spec.files import GOOD, good, problems
from tidegate.spec import Pipeline, compile_pipeline, parse_pipeline, read_compiled

FIX = "Write a day such as `2026-01-31`, or an instant with its zone: `2026-01-31T08:00:00Z`."


def scheduled(*lines: str) -> str:
    return GOOD.replace("source:\n", "".join(f"{line}\n" for line in lines) + "source:\n", 1)


def parsed(*lines: str) -> Pipeline:
    return parse_pipeline(scheduled(*lines), "p.yaml")


def test_what_is_left_out_is_utc_and_catches_up_with_nothing() -> None:
    assert (good().timezone, good().start_date, good().catchup) == ("UTC", None, False)


@pytest.mark.parametrize(
    ("zone", "written", "hours"),
    [
        ("UTC", "2026-07-01", 0),
        ("Europe/Berlin", "2026-07-01", -2),
        ("America/New_York", "2026-07-01", 4),
        ("Europe/Berlin", "2026-07-01T08:00:00+01:00", 7),
        ("Europe/Berlin", "2026-07-01 08:00Z", 8),
    ],
)
def test_a_day_begins_at_midnight_in_the_schedules_time_zone_and_an_instant_has_its_own(
    zone: str, written: str, hours: int
) -> None:
    pipeline = parsed(f"timezone: {zone}", f"start_date: {written}", "catchup: true")
    assert pipeline.start_date == datetime(2026, 7, 1, tzinfo=timezone.utc) + timedelta(hours=hours)
    assert (pipeline.timezone, pipeline.catchup) == (zone, True)


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        ("timezone: Europe/Berln", "'Europe/Berln' is not a time zone", "Did you mean `Europe/Berlin`?"),
        ("timezone: ''", "'' is not a time zone", "Write a name such as `Europe/Berlin`, or `UTC`."),
        (
            "timezone: ../etc",
            "'../etc' is not a time zone",
            "Write a name such as `Europe/Berlin`, or `UTC`.",
        ),
        ("timezone: 5", "it has to be text, not 5", "Write for example `timezone: Europe/Berlin`."),
        ("start_date: 2026-13-01", "'2026-13-01' is not a day to start on", FIX),
        ("start_date: 2026-01-31T08:00", "'2026-01-31T08:00' is not a day to start on", FIX),
        ("start_date: 7", "7 is not a day to start on", FIX),
        (
            "catchup: true",
            "`catchup: true` does not say since when",
            "Write `start_date: 2026-01-31` beside it: the first interval begins there.",
        ),
        (
            "deadline: soon",
            "'soon' is not a duration",
            "Write a whole number and a unit: `15ms`, `30s`, `10m`, `1h` or `2d`.",
        ),
        ("catchup: yes", "it has to be true or false, not 'yes'", "Write for example `catchup: true`."),
    ],
)
def test_a_mistake_is_told_with_its_fix(line: str, message: str, fix: str) -> None:
    assert problems(scheduled(line)) == [(4, line.partition(":")[0], message, fix)]


def test_a_mistaken_start_date_is_the_only_mistake_where_catching_up_needs_one() -> None:
    assert len(problems(scheduled("start_date: soon", "catchup: true"))) == 1


def test_a_planned_batch_does_not_know_when_runs_are_started() -> None:
    lines = ("timezone: Europe/Berlin", "start_date: 2026-07-01", "catchup: true", "deadline: 30m")
    compiled = compile_pipeline(parsed(*lines))
    assert compiled == compile_pipeline(good())
    assert read_compiled(compiled, GOOD, "batch 1") == good()
