"""`filter`: what it may test at the source and at a stage, and how the mistakes in it are reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import LATEST, made, refused
from tidegate.model.pipeline import Pipeline
from tidegate.model.reading import reading_of
from tidegate.yaml.load import parse_case_pipeline

SOURCE: dict[str, Any] = {
    "topics": ["in"],
    "format": "json",
    "columns": "id bigint, n int, items array<int>",
    "key": ["id"],
}


def with_filters(source: str | None, stage: str | None = None, **fields: Any) -> Pipeline:
    """A pipeline with the filter of its source, and of its stage."""
    filters = [{} if text is None else {"filter": text} for text in (source, stage)]
    out = {"name": "out", "select": {"n": "n"}, "emit": {"on": "change"}, **filters[1]}
    return parse_case_pipeline(
        {"pipeline": "p", "source": SOURCE | filters[0] | fields, "stages": [out]}, "case"
    )


def mistakes(stage: dict[str, Any]) -> list[tuple[str, str]]:
    return [(field, message) for field, message, _ in refused(stage)]


def test_source_filter_is_compiled_when_read() -> None:
    condition = with_filters("n > 1 and id is not null").sources["source"].condition
    assert condition is not None
    assert condition.text == "n > 1 and id is not null"
    assert with_filters(None).sources["source"].condition is None


def test_source_filter_sees_the_exploded_element() -> None:
    assert with_filters("items > 3", explode="items").sources["source"].condition is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hex(n) = 'a'", "a condition cannot call `hex`. Write it into the first stage's `filter`"),
        ("missing > 1", "the column `missing` does not exist"),
        ("n + 1", "the condition is int"),
    ],
)
def test_source_filter_outside_the_set_is_refused(text: str, message: str) -> None:
    with pytest.raises(Exception, match=r"source\.filter") as raised:
        with_filters(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("missing > 1", "the column `missing` does not exist"), ("price + 1", "the condition is double")],
)
def test_stage_filter_needs_a_condition_on_columns(text: str, message: str) -> None:
    ((field, mistake),) = mistakes({**LATEST, "filter": text})
    assert field == "stages.0.filter"
    assert mistake.startswith(message)


def test_later_filter_sees_emissions_and_key() -> None:
    assert made(LATEST, {"filter": "price > 1 and id > 2"}).stages[1].filter == "price > 1 and id > 2"


@pytest.mark.parametrize(("text", "selects"), [("n > 1", True), ("hex(n) = 'a'", False)])
def test_stage_filter_decides_where_columns_are_computed(text: str, selects: bool) -> None:
    reading = reading_of(with_filters(None, text))
    assert reading.selects == selects
    assert any(stage.filter is not None for stage in reading.stages.values()) == selects
