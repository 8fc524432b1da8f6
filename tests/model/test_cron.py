"""Schedules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.cron import PRESETS, cron_mistake


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/5 * * * *",
        "0,30 8-18 * * mon-fri",
        "0 0 1 JAN,jul *",
        "5/15 * * * *",
        "0 0 29 2 *",
        "0 0 31 1,2 *",
        "0 0 * * 7",
        "0 0 31 2 1",
        *PRESETS,
    ],
)
def test_valid_cron_text_is_a_schedule(text: str) -> None:
    assert cron_mistake(text) is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "5 fields, this has 0"),
        ("* * * *", "5 fields, this has 4"),
        ("* * * * * *", "5 fields, this has 6"),
        ("60 * * * *", "'60' cannot be the minute"),
        ("* 24 * * *", "'24' cannot be the hour"),
        ("* * 0 * *", "'0' cannot be the day of the month"),
        ("* * * 13 *", "'13' cannot be the month"),
        ("* * * * 8", "'8' cannot be the day of the week"),
        ("5-1 * * * *", "'5-1' cannot be the minute"),
        ("*/0 * * * *", "'*/0' cannot be the minute"),
        ("1,, * * * *", "'1,,' cannot be the minute"),
        ("x * * * *", "'x' cannot be the minute"),
        ("\u0661 * * * *", "cannot be the minute"),
        ("@often", "5 fields"),
        ("0 0 30 2 *", "does not exist"),
        ("0 0 31 4,6 *", "does not exist"),
    ],
)
def test_is_not_a_schedule(text: str, part: str) -> None:
    assert part in str(cron_mistake(text))


_FIELD = st.text("0123456789*/,-monjafe", min_size=1, max_size=6)


@given(st.lists(_FIELD, min_size=5, max_size=5))
def test_accepted_cron_is_accepted_by_airflow(fields: list[str]) -> None:
    croniter = pytest.importorskip("croniter").croniter
    text = " ".join(fields)
    if cron_mistake(text) is None:
        assert croniter(text).get_next(float) > 0
