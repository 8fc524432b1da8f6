"""When runs are started: time zone, first day, catching up."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest

from tests.model.files import GOOD, good, problems
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.model.compiled import longest_schedule_gap as compiled_gap
from tidegate.model.pipeline import Pipeline
from tidegate.model.schedule import AssetSchedule, Backlog, DataSchedule, longest_schedule_gap
from tidegate.yaml.load import parse_pipeline

CRON = (
    "Write cron such as `*/5 * * * *`, one of `@hourly`, `@daily`, `@weekly`, `@monthly`, `@quarterly`, "
    "`@yearly`, or null for no schedule."
)
FIX = "Write a day such as `2026-01-31`, or an instant with its zone: `2026-01-31T08:00:00Z`."


def scheduled(*lines: str) -> str:
    return GOOD.replace("source:\n", "".join(f"{line}\n" for line in lines) + "source:\n", 1)


def unscheduled(*lines: str) -> str:
    return re.sub("(?m)^schedule:.*\n", "", scheduled(*lines), count=1)


def parsed(*lines: str) -> Pipeline:
    return parse_pipeline(unscheduled(*lines) if "schedule:" in lines[0] else scheduled(*lines), "p.yaml")


def test_schedule_defaults_to_utc_without_catchup() -> None:
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
def test_day_starts_at_midnight_of_the_time_zone(zone: str, written: str, hours: int) -> None:
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
            "`catchup: true` needs a start date",
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
def test_a_mistake_is_reported_with_its_fix(line: str, message: str, fix: str) -> None:
    assert problems(scheduled(line)) == [(4, line.partition(":")[0], message, fix)]


def test_catchup_with_mistaken_start_date_reports_once() -> None:
    assert len(problems(scheduled("start_date: soon", "catchup: true"))) == 1


def test_planned_batch_ignores_start_of_runs() -> None:
    lines = ("timezone: Europe/Berlin", "start_date: 2026-07-01", "catchup: true", "deadline: 30m")
    compiled = compile_pipeline(parsed(*lines))
    assert compiled == compile_pipeline(good())
    assert read_compiled(compiled, GOOD, "batch 1") == good()


def test_asset_schedule_combines_all_any_and_cron() -> None:
    schedule = parsed('schedule: {assets: ["tidegate://orders", prices], when: any, cron: "@daily"}').schedule
    assert isinstance(schedule, AssetSchedule)
    assert (schedule.assets, schedule.when, schedule.cron) == (
        ("tidegate://orders", "prices"),
        "any",
        "@daily",
    )
    schedule = parsed("schedule: {assets: [orders]}").schedule
    assert schedule == AssetSchedule(assets=("orders",))
    assert (schedule.when, schedule.cron) == ("all", None)


@pytest.mark.parametrize(
    ("line", "field", "message", "fix"),
    [
        (
            "schedule: {assets: [tidegate://levels]}",
            "schedule.assets.0",
            "this pipeline publishes that asset itself: each run would start the next one",
            "Name an asset that another DAG publishes.",
        ),
        (
            "schedule: {assets: ['two words']}",
            "schedule.assets.0",
            "'two words' is not an asset's URI or name",
            "Write a URI without blanks, such as `tidegate://orders` for the pipeline `orders`.",
        ),
        (
            "schedule: {assets: ['airflow://x']}",
            "schedule.assets.0",
            "'airflow://x' is not an asset's URI or name",
            "Write a URI without blanks, such as `tidegate://orders` for the pipeline `orders`.",
        ),
        ("schedule: {assets: [a, a]}", "schedule.assets", "`a` is named twice", "Name it once."),
        (
            "schedule: {assets: []}",
            "schedule.assets",
            "it is empty",
            'Write for example `assets: ["tidegate://orders"]`.',
        ),
        (
            'schedule: {cron: "@daily"}',
            "schedule.assets",
            "`assets` is missing",
            'Write for example `assets: ["tidegate://orders"]`.',
        ),
        (
            "schedule: {assets: [a], when: some}",
            "schedule.when",
            "'some' is not known",
            "Write one of `all`, `any`.",
        ),
        (
            "schedule: {assets: [a], cron: daily}",
            "schedule.cron",
            "a schedule has 5 fields, this has 1",
            CRON,
        ),
        (
            "schedule: {asset: a, assets: [a]}",
            "schedule.asset",
            "unknown field `asset` in `schedule`",
            "Did you mean `assets`?",
        ),
        (
            "schedule: [a]",
            "schedule",
            "it has to be text, not a list",
            'Write for example `schedule: "*/5 * * * *"`.',
        ),
    ],
)
def test_asset_schedule_mistake_is_reported_in_place(line: str, field: str, message: str, fix: str) -> None:
    assert problems(unscheduled(line)) == [(3, field, message, fix)]


def test_data_schedule_has_bounds_and_cron() -> None:
    line = 'schedule: {on_data: {records: 10_000, or_after: 1m}, cron: "@hourly"}'
    schedule = parsed(line).schedule
    assert schedule == DataSchedule(on_data=Backlog(records=10_000, or_after="1m"), cron="@hourly")
    compiled = compile_pipeline(parsed(line))
    assert read_compiled(compiled, GOOD, "batch 1").schedule == schedule


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        ("schedule: {on_data: {records: 9, or_after: 1m}}", timedelta(minutes=1)),
        ('schedule: {on_data: {records: 9, or_after: 2h}, cron: "@hourly"}', timedelta(hours=1)),
        ('schedule: {assets: [a], cron: "@hourly"}', timedelta(hours=1)),
        ("schedule: {assets: [a]}", None),
        ('schedule: "@hourly"', timedelta(hours=1)),
        ("schedule: null", None),
    ],
)
def test_records_wait_at_most_one_gap(line: str, gap: timedelta | None) -> None:
    pipeline = parse_pipeline(unscheduled(line), "p.yaml")
    assert longest_schedule_gap(pipeline.schedule) == gap
    assert compiled_gap(compile_pipeline(pipeline), "batch 1") == gap


@pytest.mark.parametrize(
    ("line", "field", "message", "fix"),
    [
        (
            "schedule: {on_data: {records: 0, or_after: 1m}}",
            "schedule.on_data.records",
            "0 is too small",
            "Write for example `records: 10_000`.",
        ),
        (
            "schedule: {on_data: {records: 9}}",
            "schedule.on_data.or_after",
            "`or_after` is missing",
            "Write for example `or_after: 1m`.",
        ),
        (
            "schedule: {on_data: 9}",
            "schedule.on_data",
            "it has to be a mapping, not 9",
            "Write for example `on_data: {records: 10_000, or_after: 1m}`.",
        ),
        (
            "schedule: {on_data: {records: 9, or_after: 1m}, assets: [a]}",
            "schedule.assets",
            "`assets` does not go with `on_data: {'records': 9, 'or_after': '1m'}`",
            "Leave it out.",
        ),
    ],
)
def test_data_schedule_mistake_is_reported_in_place(line: str, field: str, message: str, fix: str) -> None:
    assert problems(unscheduled(line)) == [(3, field, message, fix)]


@pytest.mark.parametrize("schedule", ["{assets: [a]}", "{on_data: {records: 9, or_after: 1m}}"])
def test_catchup_needs_cron_in_schedule(schedule: str) -> None:
    since = ("start_date: 2026-01-31", "catchup: true")
    ((_, field, message, fix),) = problems(unscheduled(f"schedule: {schedule}", *since))
    assert (field, message) == ("catchup", "`catchup: true` needs intervals, which only `cron` has")
    assert fix == "Leave it out: a run reads all records up to now. Or write `cron:` in `schedule`."
    assert parsed('schedule: {assets: [a], cron: "@daily"}', *since).catchup


def test_planned_batch_restores_an_asset_schedule() -> None:
    pipeline = parsed("schedule: {assets: [a], when: any}")
    assert read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1").schedule == pipeline.schedule
