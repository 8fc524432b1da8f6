"""`unchanged` goes with stages that know each key's last value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import COLLECT, COUNT, HOUR, made, refused
from tidegate import kernel
from tidegate.model.kernel_stages import kernel_stage

NULLS: dict[str, Any] = {
    "unchanged": "nulls",
    "select": {"price": "price", "name": "`name`"},
    "emit": {"on": "change"},
}
PLACEHOLDER = {"text": "__debezium_unavailable_value"}


def unchanged(**stage: Any) -> kernel.Unchanged | None:
    pipeline = made({**NULLS, **stage})
    return kernel_stage(pipeline, pipeline.stages[0]).unchanged


def test_it_is_nulls_or_a_text() -> None:
    assert unchanged() == kernel.Unchanged()
    assert unchanged(unchanged=PLACEHOLDER) == kernel.Unchanged("__debezium_unavailable_value")
    assert unchanged(unchanged=None) is None


def test_unchanged_works_with_update_and_full_change() -> None:
    for emit in (
        {"on": "update"},
        {"on": "change", "heartbeat": "1h"},
        {"on": "change", "columns": ["name", "price"]},
    ):
        assert unchanged(emit=emit) == kernel.Unchanged()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "aggregates": ({**COUNT, "emit": {"on": "update"}}, "only the `latest` value"),
    "events": ({**COLLECT, "emit": {"on": "update"}}, "only the `latest` value"),
    "a window": ({**HOUR, "emit": {"on": "update"}}, "only the `latest` value"),
    "a change of some columns": (
        {"emit": {"on": "change", "columns": ["price"]}},
        "the next record could not refer to a value that the stage does not emit",
    ),
    "a change of all columns but one": (
        {"emit": {"on": "change", "ignore": ["price"]}},
        "the next record could not refer to a value that the stage does not emit",
    ),
    "a tolerance": (
        {"emit": {"on": "change", "equal": {"within": {"price": 1}}}},
        "the next record could not refer to a value that the stage does not emit",
    ),
    "hashes": (
        {"emit": {"on": "change", "state": "hash"}},
        "the next record could not refer to a value that the stage does not emit",
    ),
    "what is held back": (
        {"emit": {"on": "time_limit", "after": "1s"}},
        "the next record could not refer to a value that the stage does not emit",
    ),
    "a condition": ({"where": "price > 1"}, "a value that `where` drops"),
    "what is computed": ({"select": {"price": "price * 2"}}, "`price` is computed"),
    "another word": ({"unchanged": "null"}, "'null' is not known"),
}


@pytest.mark.parametrize(("stage", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_it_does_not_go_with_is_refused(stage: dict[str, Any], why: str) -> None:
    select = {} if stage.get("reduce") not in (None, "collect") else {"select": NULLS["select"]}
    ((field, message, fix),) = refused({"unchanged": "nulls", **select, "emit": {"on": "change"}, **stage})
    assert field == "stages.0.unchanged"
    assert why in message
    assert fix


def test_a_later_stage_gets_whole_values() -> None:
    ((field, message, _),) = refused({**NULLS}, {"emit": {"on": "update"}, "unchanged": "nulls"})
    assert (field, message) == ("stages.1.unchanged", "a later stage gets whole values")


def test_unchanged_excludes_lookups_roots_and_row_checks() -> None:
    lookup = {"table": "stores/current", "on": ["name"], "columns": ["region"]}
    quality = {"suite": "s", "on_failure": "quarantine"}
    assert [field for field, *_ in refused(NULLS, lookup=[lookup])] == ["stages.0.unchanged"]
    assert [field for field, *_ in refused(NULLS, source={"deduplicate": "root"})] == ["stages"]
    assert [field for field, *_ in refused(NULLS, quality=quality)] == ["quality"]
    later = {"emit": {"on": "update"}}
    assert refused(NULLS, later, quality=quality) == []
    assert [
        field for field, *_ in refused(NULLS, later, quality={**quality, "stage": made(NULLS).stages[0].name})
    ] == ["quality"]
