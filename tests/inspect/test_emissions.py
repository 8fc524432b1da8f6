"""The newest emissions of a stage, as pages ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded import Seeded, emission
from tidegate.app import stream_of
from tidegate.errors import SettingsInvalid
from tidegate.inspect import Emissions, newest_emissions


@pytest.fixture
def seeded(tmp_path: Path) -> Seeded:
    """Three batches: of s1, of nothing, and of s1 and s2."""
    made = Seeded(tmp_path)
    pipeline = made.add_sample("availability")
    made.batch(pipeline, 1, {"emitted": 1}, outbox=[emission("s1", 1, reason="new")])
    made.batch(pipeline, 2, {"emitted": 0})
    rows = [emission("s1", 2), emission("s1", None, 1, "deleted"), emission("s2", 5, reason="new")]
    made.batch(pipeline, 3, {"emitted": 3}, outbox=rows)
    return made


def newest(seeded: Seeded, key: str | None = None, before: int | None = None, most: int = 50) -> Emissions:
    stream = stream_of(seeded.app.pipeline("availability"))
    return newest_emissions(seeded.app, stream, "availability", key, before, most)


def test_emissions_of_a_key_are_newest_first(seeded: Seeded) -> None:
    shown = [(row.seq, row.value, row.reason) for row in newest(seeded, "s1").rows]
    assert shown == [(3, None, "deleted"), (3, '{"n":2}', "changed"), (1, '{"n":1}', "new")]


def test_emissions_name_the_sinks_of_their_batch(seeded: Seeded) -> None:
    assert {row.sinks for row in newest(seeded).rows} == {("kafka:availability",)}


def test_a_page_ends_where_the_next_goes_on(seeded: Seeded) -> None:
    first = newest(seeded, most=3)
    assert ([row.seq for row in first.rows], first.before) == ([3, 3, 3], 3)
    second = newest(seeded, before=first.before)
    assert ([row.seq for row in second.rows], second.before) == ([1], None)


def test_key_without_emissions_has_none(seeded: Seeded) -> None:
    page = newest(seeded, "s9")
    assert (page.rows, page.searched, page.before) == ([], 3, None)


def test_unknown_stage_is_an_error(seeded: Seeded) -> None:
    with pytest.raises(SettingsInvalid, match="has no stage"):
        newest_emissions(seeded.app, stream_of(seeded.app.pipeline("availability")), "other")
