"""`ttl` of a stage: its two forms, and the stages that cannot have one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import COLLECT, COUNT, HOUR, LATEST, made, refused
from tidegate import kernel
from tidegate.model.kernel_stages import kernel_stage

WEEK_MS = 7 * 24 * 60 * 60 * 1000


def test_both_forms_reach_the_kernel() -> None:
    for written, expected in (
        ("7d", kernel.TimeToLive(WEEK_MS)),
        ({"after": "7d"}, kernel.TimeToLive(WEEK_MS)),
        ({"after": "7d", "emit": "deletion"}, kernel.TimeToLive(WEEK_MS, "deletion")),
        (None, None),
    ):
        pipeline = made({**LATEST, "emit": {"on": "change"}, "ttl": written})
        assert kernel_stage(pipeline, pipeline.stages[0]).ttl == expected
        assert pipeline.stages[0].timed == (written is not None)


LIMIT: dict[str, Any] = {**LATEST, "emit": {"on": "time_limit", "after": "1h"}}
BOUNDED = {**LIMIT, "emit": {**LIMIT["emit"], "buffer": {"max_records": 5}}}
MISTAKES: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "a text": (LATEST, "soon", "stages.0.ttl", "'soon' is not a duration"),
    "no time": (LATEST, {"emit": "deletion"}, "stages.0.ttl.after", "`after` is missing"),
    "another emission": (LATEST, {"after": "7d", "emit": "null"}, "stages.0.ttl.emit", "not known"),
    "another field": (LATEST, {"after": "7d", "emits": "deletion"}, "stages.0.ttl.emits", "unknown field"),
    "a window": ({**COUNT, **HOUR}, "7d", "stages.0.ttl", "does not go with `window`"),
    "a bounded buffer": (BOUNDED, "7d", "stages.0.ttl", "per partition"),
    "a longer wait": (LIMIT, "30m", "stages.0.ttl", "before the values that wait are emitted"),
    "an endless wait": (
        {**COLLECT, "emit": {"on": "threshold", "count": 5}},
        "7d",
        "stages.0.ttl",
        "wait for a threshold",
    ),
    "no value to delete": (
        {**COLLECT, "emit": {"on": "threshold", "count": 5, "after": "1h"}},
        {"after": "7d", "emit": "deletion"},
        "stages.0.ttl",
        "none to delete",
    ),
}


@pytest.mark.parametrize(("stage", "ttl", "field", "part"), MISTAKES.values(), ids=MISTAKES.keys())
def test_impossible_ttl_is_refused_with_fix(stage: dict[str, Any], ttl: Any, field: str, part: str) -> None:
    ((place, message, fix),) = refused({"emit": {"on": "change"}, **stage, "ttl": ttl})
    assert (place, part in message, bool(fix)) == (field, True, True)


def test_group_that_takes_values_back_needs_them() -> None:
    total = {"reduce": {"total": "sum(n)"}, "key": ["n"], "emit": {"on": "update"}, "retract": True}
    first = {"select": {"n": "id"}, "emit": {"on": "change"}}
    assert refused({**first, "ttl": {"after": "7d", "emit": "deletion"}}, total) == []
    for stages in ([{**first, "ttl": "7d"}, total], [first, {**total, "ttl": "7d"}]):
        ((place, message, _),) = refused(*stages)
        assert (place, "`ttl`" in message) == ("stages.1.retract", True)


def test_unchanged_columns_need_a_state_for_ever() -> None:
    stage = {"emit": {"on": "update"}, "unchanged": "nulls", "ttl": "7d"}
    ((place, message, _),) = refused(stage)
    assert (place, message) == (
        "stages.0.unchanged",
        "the next record could not refer to a value that has expired",
    )
