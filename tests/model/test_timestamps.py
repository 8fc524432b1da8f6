"""`source.timestamp`: a column, and how its times are written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.formats.times import TimeRule
from tidegate.model.zones import time_zone
from tidegate.storage.compatibility import incompatible_changes

COLUMNS = (
    "id bigint, at string, seen timestamp, local timestamp_ntz, n int, big bigint, price double, "
    "meta struct<at: timestamp>, items array<struct<at: timestamp>>"
)
STAGE = {"select": {"id": "id"}}


def timed(timestamp: Any, **source: Any) -> Any:
    return made(STAGE, source={"columns": COLUMNS, "timestamp": timestamp, **source}).sources["source"]


def test_word_and_mapping_name_a_column() -> None:
    assert (timed("record").timestamp_path, timed("record").time_rule) == (None, None)
    assert (timed("seen").timestamp_path, timed("seen").time_rule) == ("seen", None)
    rule = timed({"column": "meta.at", "format": "dd.MM.yyyy", "timezone": "Europe/Berlin"})
    assert rule.timestamp_path == "meta.at"
    assert rule.time_rule == TimeRule("dd.MM.yyyy", time_zone("Europe/Berlin"))


@pytest.mark.parametrize(
    "timestamp",
    [
        {"column": "at"},
        {"column": "at", "format": "yyyy-MM-dd'T'HH:mm[XXX]", "zoneless": "refuse"},
        {"column": "seen", "zoneless": "refuse"},
        {"column": "local", "timezone": "Asia/Kolkata"},
        {"column": "n", "format": "epoch_seconds"},
        {"column": "big", "format": "epoch_micros"},
    ],
)
def test_forms_that_go_together_are_accepted(timestamp: dict[str, Any]) -> None:
    timed(timestamp)
    timed({"column": "sent", "format": "yyyy-MM-dd"}, headers={"sent": "string"})


@pytest.mark.parametrize(
    ("timestamp", "field", "message", "fix"),
    [
        (
            "at",
            "",
            "`at` is string, which is not a time",
            'timestamp: {column: at, format: "dd.MM.yyyy',
        ),
        ("n", "", "`n` is int, which is not a time", 'format: "epoch_seconds"'),
        (5, "", "5 is not a time of records", "Write `record`, a column, or `{column: at"),
        ({"column": "att"}, ".column", "the column `att` does not exist", "Did you mean `at`?"),
        ({"column": "price"}, ".column", "`price` is double, which is not a time", "Use a `string`"),
        ({"column": "at", "format": "dd.MM.yy HH:mn"}, ".format", "`n` is not a part", "Use `yyyy MM dd"),
        (
            {"column": "at", "format": "epoch_seconds"},
            ".format",
            "`epoch_seconds` is for",
            "as `bigint`",
        ),
        ({"column": "n", "format": "epoch_second"}, ".format", "", "Did you mean `epoch_seconds`?"),
        (
            {"column": "n", "format": "yyyy-MM-dd"},
            ".format",
            "the column is int, and has",
            "as `string`",
        ),
        ({"column": "at", "timezone": "Berlin"}, ".timezone", "'Berlin' is not a time zone", "Europe/Berlin"),
        ({"column": "at", "timezone": "CEST"}, ".timezone", "'CEST' is not a time zone", "Write a name"),
        ({"column": "at", "timezone": "utc"}, ".timezone", "'utc' is not a time zone", "Did you mean `UTC`?"),
        ({"column": "big", "timezone": "UTC"}, ".timezone", "a number is an instant, and has no", "Leave it"),
        ({"column": "at", "zoneless": "reject"}, ".zoneless", "'reject' is not known", ""),
        (
            {"column": "at", "zoneless": "refuse", "timezone": "UTC"},
            ".zoneless",
            "`timezone` says what times without a zone are, and `zoneless` refuses them",
            "Leave one of them out.",
        ),
        (
            {"column": "big", "zoneless": "refuse"},
            ".zoneless",
            "a number (`bigint`) is an",
            "Leave it",
        ),
        (
            {"column": "at", "format": "yyyy-MM-dd", "zoneless": "refuse"},
            ".zoneless",
            "no time of the column has a zone: all records would be refused",
            "Add the offset to the format (`XXX`)",
        ),
        (
            {"column": "local", "zoneless": "refuse"},
            ".zoneless",
            "no time of the column has a zone",
            "timezone",
        ),
    ],
)
def test_mistakes_in_timestamps_have_a_fix(timestamp: Any, field: str, message: str, fix: str) -> None:
    ((place, what, how),) = refused(STAGE, source={"columns": COLUMNS, "timestamp": timestamp})
    assert place == f"source.timestamp{field}"
    assert what.startswith(message)
    assert fix in how


@pytest.mark.parametrize(
    ("timestamp", "source", "message"),
    [
        ("sent", {"headers": {"sent": "timestamp"}}, "`sent` is not in the value, and read already"),
        ("items.at", {"explode": "items"}, "`items.at` is in an exploded array, and read already"),
    ],
)
def test_instants_that_are_read_have_no_format(timestamp: str, source: dict[str, Any], message: str) -> None:
    rule = {"column": timestamp, "timezone": "Europe/Berlin"}
    ((_, what, fix),) = refused(STAGE, source={"columns": COLUMNS, "timestamp": rule, **source})
    assert (what, fix) == (message, "Declare it as `string`.")


def test_another_zone_is_another_time() -> None:
    before, after = (
        made(STAGE, source={"columns": COLUMNS, "timestamp": {"column": "at", "timezone": zone}})
        for zone in ("Europe/Berlin", "Europe/Paris")
    )
    assert [change.field for change in incompatible_changes(before, after)] == ["source.timestamp"]
    assert incompatible_changes(before, before) == []
