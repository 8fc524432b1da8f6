"""Settings that are checked when they are read."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidegate.errors import SettingsInvalid
from tidegate.settings import Settings


@pytest.mark.parametrize("text", ["512m", "1500m", "4g", "4G"])
def test_the_heap_of_spark_s_driver_is_passed_on_as_it_is_written(text: str) -> None:
    assert Settings.from_environment({"TIDEGATE_SPARK_MEMORY": text}).spark_memory == text


@pytest.mark.parametrize("environment", [{}, {"TIDEGATE_SPARK_MEMORY": ""}])
def test_without_it_spark_decides(environment: dict[str, str]) -> None:
    assert Settings.from_environment(environment).spark_memory is None


@pytest.mark.parametrize("text", ["4", "4 g", "4GB", "0g", "1.5g", "511m", "-1g", "4t", "x"])
def test_a_heap_that_java_or_spark_would_refuse_is_refused_first(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="such as 1500m or 4g; at least 512m"):
        Settings.from_environment({"TIDEGATE_SPARK_MEMORY": text})


@pytest.mark.parametrize(("text", "days"), [("", 30.0), ("0", 0.0), ("0.5", 0.5), ("365", 365.0)])
def test_time_travel_is_in_days(text: str, days: float) -> None:
    assert Settings.from_environment({"TIDEGATE_TIME_TRAVEL": text}).time_travel == timedelta(days=days)


@pytest.mark.parametrize("text", ["a month", "-1", "nan", "1e300"])
def test_what_is_no_number_of_days_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="no number of days"):
        Settings.from_environment({"TIDEGATE_TIME_TRAVEL": text})
