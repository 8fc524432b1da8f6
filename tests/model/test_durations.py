"""Durations are whole numbers with a unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.files import COUNT, refused
from tidegate.kernel.windows import UNITS, parse_duration, write_duration


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("15ms", 15), ("30s", 30_000), ("10m", 600_000), ("1h", 3_600_000), ("2d", 172_800_000), ("0ms", 0)],
)
def test_a_duration_becomes_milliseconds(written: str, milliseconds: int) -> None:
    assert parse_duration(written) == milliseconds


@given(st.integers(0, 2**45))
def test_milliseconds_come_back_as_they_were_written(milliseconds: int) -> None:
    assert parse_duration(write_duration(milliseconds)) == milliseconds


@given(st.integers(0, 10**9), st.sampled_from(list(UNITS)))
def test_duration_is_written_with_its_largest_unit(count: int, unit: str) -> None:
    milliseconds = count * UNITS[unit]
    written = write_duration(milliseconds)
    assert parse_duration(written) == milliseconds
    assert len(written) <= len(f"{count}{unit}") or count == 0


@pytest.mark.parametrize(
    "written", ["5", "s", "1.5s", "-1s", "1 s", "1S", "1w", "1h30m", "", "٣s", 5, 1.5, None, True, ["1s"]]
)
def test_anything_else_is_no_duration(written: object) -> None:
    mistakes = refused({**COUNT, "emit": {"on": "interval", "every": written}})
    assert [(field, "is not a duration" in message) for field, message, _ in mistakes] == [
        ("stages.0.emit.every", True)
    ]


@pytest.mark.parametrize(("written", "part"), [("0s", "has no length"), ("99999999d", "is too long")])
def test_a_duration_has_a_length_within_reason(written: str, part: str) -> None:
    ((field, message, fix),) = refused({**COUNT, "emit": {"on": "interval", "every": written}})
    assert (field, part in message) == ("stages.0.emit.every", True)
    assert fix.startswith("Write")
