"""Formats and zones of the times of records."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tests.formats.test_frame import body, decoded, layout, single_row
from tidegate.formats.metadata import RecordMetadata
from tidegate.formats.times import INSTANT, BadFormat, TimeRule, compiled_format
from tidegate.model.zones import time_zone

UTC = timezone.utc


def instants(rule: TimeRule, *values: Any, type_: pa.DataType | None = None) -> list[Any]:
    """The instants, or the reasons."""
    times, reasons = rule.instants(pa.array(values, type_), "at")
    pairs = zip(times.to_pylist(), reasons.to_pylist(), strict=True)
    return [reason or time for time, reason in pairs]


@pytest.mark.parametrize(
    ("format_", "text", "expected"),
    [
        ("dd.MM.yyyy HH:mm:ss", "31.01.2026 10:30:05", datetime(2026, 1, 31, 10, 30, 5)),
        ("d.M.yy", "1.12.26", datetime(2026, 12, 1)),
        ("yyyyMMdd'T'HHmmssSSS", "20260131T103005250", datetime(2026, 1, 31, 10, 30, 5, 250_000)),
        ("yyyy-MM-dd HH:mm[:ss[.SSSSSS]]", "2026-01-31 10:30", datetime(2026, 1, 31, 10, 30)),
        ("yyyy-MM-dd HH:mm[:ss[.SSSSSS]]", "2026-01-31 10:30:05.000007", datetime(2026, 1, 31, 10, 30, 5, 7)),
        ("dd/MMM/yyyy:HH:mm:ss Z", "31/Jan/2026:10:30:05 +0130", datetime(2026, 1, 31, 9, 0, 5)),
        ("MMMM d yyyy hh:mm a", "May 3 2026 12:05 AM", datetime(2026, 5, 3, 0, 5)),
        ("MMMM d yyyy hh:mm a", "August 3 2026 12:05 PM", datetime(2026, 8, 3, 12, 5)),
        ("yyyy-MM-dd HH:mmX", "2026-01-31 10:30-08", datetime(2026, 1, 31, 18, 30)),
        ("yyyy-MM-dd HH:mmXXX", "2026-01-31 10:30Z", datetime(2026, 1, 31, 10, 30)),
        (None, "2026-01-31T10:30:00", datetime(2026, 1, 31, 10, 30)),
        (None, "2026-01-31 10:30:00.5+02:00", datetime(2026, 1, 31, 8, 30, 0, 500_000)),
        (None, "2026-01-31 10:30:00.500000+02:00", datetime(2026, 1, 31, 8, 30, 0, 500_000)),
    ],
)
def test_text_of_a_format_is_an_instant(format_: str | None, text: str, expected: datetime) -> None:
    assert instants(TimeRule(format_), text) == [expected.replace(tzinfo=UTC)]


@pytest.mark.parametrize(
    "text",
    [
        *("1.01.2026", "31.1.2026", "31.02.2026", "29.02.2025", "00.01.2026", "31.13.2026", "31.01.0000"),
        *("", " 31.01.2026", "31.01.2026 ", "31.01.26", "31-01-2026", "31.01.2026 10:00", "٣١.01.2026"),
    ],
)
def test_text_of_another_form_is_unusable(text: str) -> None:
    assert instants(TimeRule("dd.MM.yyyy"), text, None) == [
        *("malformed: Expected a time as `dd.MM.yyyy` - at `at`", None)
    ]


def test_last_day_of_february_follows_the_calendar() -> None:
    rule = TimeRule("yyyy-MM-dd")
    years = (1900, 2000, 2023, 2024, 2100)
    exist = [isinstance(instants(rule, f"{year}-02-29")[0], datetime) for year in years]
    assert exist == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("format_", "number", "expected"),
    [
        ("epoch_seconds", 1_700_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("epoch_millis", 1_700_000_000_001, datetime(2023, 11, 14, 22, 13, 20, 1000, UTC)),
        ("epoch_micros", 1_700_000_000_000_001, datetime(2023, 11, 14, 22, 13, 20, 1, UTC)),
        (None, 1500, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("epoch_seconds", 2**62, "malformed: A time is not in the years 1 to 9999 of UTC - at `at`"),
        ("epoch_seconds", None, None),
    ],
)
def test_numbers_count_from_1970(format_: str | None, number: int | None, expected: Any) -> None:
    assert instants(TimeRule(format_), number, type_=pa.int64()) == [expected]


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
def test_local_times_are_those_of_python(name: str) -> None:
    """A time that comes twice is the first one; one that is left out is later by the jump, as in Spark."""
    zone = ZoneInfo(name)
    start = datetime(2026, 1, 1)
    times = [start + timedelta(minutes=17 * number) for number in range(31_000)]
    rule = TimeRule(None, time_zone(name))
    results = instants(rule, *times, type_=pa.timestamp("us"))
    assert results == [time.replace(tzinfo=zone).astimezone(UTC) for time in times]


def test_zone_counts_only_without_an_offset() -> None:
    rule = TimeRule(None, time_zone("Europe/Berlin"))
    assert instants(rule, "2026-07-01T12:00:00", "2026-07-01T12:00:00Z", None) == [
        *(datetime(2026, 7, 1, 10, tzinfo=UTC), datetime(2026, 7, 1, 12, tzinfo=UTC), None)
    ]


def test_zoneless_time_is_refused() -> None:
    rule = TimeRule(None, None, "refuse")
    assert instants(rule, "2026-07-01T12:00:00", "2026-07-01T12:00:00+00:00", "noon", None) == [
        "zoneless_timestamp",
        datetime(2026, 7, 1, 12, tzinfo=UTC),
        "malformed: Expected a time as `2026-01-31T10:30:00` - at `at`",
        None,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dd.MM HH:mm", "has no year"),
        ("yyyy-dd", "has no month"),
        ("yyyy-MM", "has no day"),
        ("yyyy-MM-dd hh:mm", "has half of a 12-hour time"),
        ("yyyy-MM-dd HH:mm a", "has half of a 12-hour time"),
        ("yyyy-MM-dd VV", "`VV` is not a part of a time that tidegate reads"),
        ("EEE yyyy-MM-dd", "`EEE` is not"),
        ("yyyy-MM-dd SSSSSSS", "`SSSSSSS` is not"),
        ("yyyy-MM-dd dd", "`dd` is there twice"),
        ("yyyy-MM-dd [HH", "is not closed"),
        ("yyyy-MM-dd 'T", "has a ' that does not belong there"),
    ],
)
def test_unreadable_format_has_a_fix(text: str, message: str) -> None:
    with pytest.raises(BadFormat) as error:
        compiled_format(text)
    what, fix = error.value.args
    assert message in what
    assert fix


ROWS = pa.schema(
    [("at", INSTANT), ("meta", pa.struct([("at", INSTANT), ("n", pa.int32())])), ("s", pa.string())]
)


@pytest.mark.parametrize("path", ["at", "meta.at"])
def test_timestamp_column_has_the_instant_of_its_text(path: str) -> None:
    rule = TimeRule("dd.MM.yyyy HH:mm", time_zone("Europe/Berlin"))
    timed = layout(columns=ROWS, timestamp=path, time=rule)
    text = "01.01.1970 01:00"
    rows = decoded(
        timed,
        {"value": body(**({"at": text} if path == "at" else {"meta": {"at": text, "n": 1}}))},
        {"value": body(**({"at": "noon"} if path == "at" else {"meta": {"at": "noon"}}))},
        {"value": body()},
        {"value": None},
    )
    instant = datetime(1970, 1, 1, tzinfo=UTC)
    assert (rows[0]["at"] if path == "at" else rows[0]["meta"]["at"]) == instant
    assert [row["__reason"] for row in rows] == [
        None,
        f"malformed: Expected a time as `dd.MM.yyyy HH:mm` - at `{path}`",
        "no_timestamp",
        None,
    ]


def test_text_column_stays_a_text() -> None:
    timed = layout(columns=ROWS, timestamp="s", time=TimeRule("d.M.yyyy"))
    row = single_row(timed, value=body(s="1.1.1970"))
    assert (row["s"], row["__timestamp"], row["__reason"]) == ("1.1.1970", 0, None)


def test_header_is_the_time_of_tombstones() -> None:
    metadata = RecordMetadata(headers={"sent": ("sent", pa.string())})
    timed = layout(columns=ROWS, timestamp="sent", time=TimeRule("yyyy-MM-dd"), metadata=metadata)
    headers = [("sent", b"1970-01-01")]
    rows = decoded(timed, {"value": None, "headers": headers}, {"value": body(), "headers": headers})
    assert [row["__timestamp"] for row in rows] == [0, 0]
