"""Settings that are checked when they are read."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from tidegate.errors import SettingsInvalid
from tidegate.settings import VARIABLES, Settings
from tidegate_dev import stack

INTERNAL = {"TIDEGATE_FAILPOINTS", "TIDEGATE_FAILPOINTS_FIRED", "TIDEGATE_STACK"}
"""Between processes of tidegate, and in its tests."""


@pytest.mark.parametrize("text", ["512m", "1500m", "4g", "4G"])
def test_driver_memory_is_passed_as_written(text: str) -> None:
    assert Settings.from_environment({"TIDEGATE_SPARK_MEMORY": text}).spark_memory == text


@pytest.mark.parametrize("environment", [{}, {"TIDEGATE_SPARK_MEMORY": ""}])
def test_without_it_spark_decides(environment: dict[str, str]) -> None:
    assert Settings.from_environment(environment).spark_memory is None


@pytest.mark.parametrize("text", ["4", "4 g", "4GB", "0g", "1.5g", "511m", "-1g", "4t", "x"])
def test_invalid_driver_memory_is_refused_first(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="such as 1500m or 4g; at least 512m"):
        Settings.from_environment({"TIDEGATE_SPARK_MEMORY": text})


def test_relative_home_is_below_the_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipelines = str(tmp_path / "shop")
    for home, expected in (("state", tmp_path / "shop" / "state"), (str(tmp_path / "s"), tmp_path / "s")):
        environment = {"TIDEGATE_HOME": home, "TIDEGATE_PIPELINES": pipelines}
        assert Settings.from_environment(environment).home == expected
    assert Settings.from_environment({"TIDEGATE_PIPELINES": pipelines}).home == tmp_path / ".tidegate"


def test_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="names the folder of a user who does not exist"):
        Settings.from_environment({"TIDEGATE_HOME": "~nobody-of-this-name/data"})


def test_each_cluster_has_its_own_variable() -> None:
    settings = Settings.from_environment(
        {
            "TIDEGATE_KAFKA": "main:1",
            "TIDEGATE_KAFKA_SHOP": '{"bootstrap.servers": "shop:2"}',
            "TIDEGATE_KAFKA_BROKEN": "{",
            "TIDEGATE_KAFKA_EMPTY": "",
            "TIDEGATE_KAFKA_PORT": "9092",
        }
    )
    assert (settings.kafka().servers, settings.kafka("shop").servers) == ("main:1", "shop:2")
    assert settings.kafka("shop").variable == "TIDEGATE_KAFKA_SHOP"
    with pytest.raises(SettingsInvalid, match="TIDEGATE_KAFKA_BROKEN is neither"):
        settings.kafka("broken")
    with pytest.raises(SettingsInvalid, match=r"TIDEGATE_KAFKA_EMPTY is not set.*`connection: empty`"):
        settings.kafka("empty")


def test_connections_are_not_in_what_settings_show() -> None:
    secret = "canary-93aa"
    environment = {"TIDEGATE_SQL": f"postgresql://u:{secret}@h/d", "TIDEGATE_KAFKA_A": secret}
    assert secret not in repr(Settings.from_environment(environment))


@pytest.mark.parametrize(("text", "days"), [("", 30.0), ("0", 0.0), ("0.5", 0.5), ("365", 365.0)])
def test_time_travel_is_in_days(text: str, days: float) -> None:
    assert Settings.from_environment({"TIDEGATE_TIME_TRAVEL": text}).time_travel == timedelta(days=days)


@pytest.mark.parametrize("text", ["a month", "-1", "nan", "1e300"])
def test_what_is_no_number_of_days_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="no number of days"):
        Settings.from_environment({"TIDEGATE_TIME_TRAVEL": text})


@pytest.mark.parametrize(("text", "seconds"), [("", 0.5), ("3", 3.0)])
def test_page_wait_is_in_seconds(text: str, seconds: float) -> None:
    settings = Settings.from_environment({"TIDEGATE_PAGE_WAIT": text})
    assert settings.page_wait == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["long", "0", "-1", "61", "nan"])
def test_page_wait_beyond_a_minute_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="no number of seconds up to 60"):
        Settings.from_environment({"TIDEGATE_PAGE_WAIT": text})


def test_described_variables_equal_those_read() -> None:
    root = Path(__file__).resolve().parents[1]
    code = [
        path.read_text()
        for top in ("include", "plugins", "tidegate-dev")
        for path in (root / top).rglob("*.py")
    ]
    texts = re.sub(r"^VARIABLES = \(\n.*?^\)\n", "", "\n".join(code), flags=re.DOTALL | re.MULTILINE)
    quoted = set(re.findall(r'"(TIDEGATE_[A-Z_]*[A-Z])"', texts))
    by_connection = {
        f"TIDEGATE_{kind}_<CONNECTION>"
        for kind in ("KAFKA", "SQL", "REGISTRY", "HTTP", "ICEBERG", "CLICKHOUSE")
    }
    assert {variable.name for variable in (*VARIABLES, *stack.VARIABLES)} == (
        quoted - INTERNAL
    ) | by_connection
