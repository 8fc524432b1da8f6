"""`retract`: which stages can take back what the emissions before them replace."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import COLLECT, HOUR, LATEST, made, refused
from tidegate.kernel import Aggregates
from tidegate.model.kernel_stages import kernel_stage

GROUPS: dict[str, Any] = {
    "key": ["name"],
    "retract": True,
    "reduce": {"n": "count(*)", "total": "sum(price)"},
}


def groups(**fields: Any) -> dict[str, Any]:
    return {**GROUPS, **fields}


def test_group_counts_its_rows_with_its_own_column() -> None:
    reduce = made(LATEST, groups()).stages[1].reduce
    assert isinstance(reduce, Aggregates)
    assert (reduce.members, len(reduce.aggregates), reduce.formulas) == ("n", 2, ())


def test_group_without_a_count_gets_a_hidden_one() -> None:
    stage = made(LATEST, groups(reduce={"total": "sum(price)"})).stages[1]
    reduce = stage.reduce
    assert isinstance(reduce, Aggregates)
    assert reduce.by_name[str(reduce.members)].text == "count(*)"
    assert stage.emitted == ("total",)


def test_stage_before_says_what_its_emissions_replace() -> None:
    pipeline = made(LATEST, groups())
    assert kernel_stage(pipeline, pipeline.stages[0]).tells_before
    assert not kernel_stage(pipeline, pipeline.stages[1]).tells_before
    assert pipeline.takes_deletions(pipeline.stages[1])


THRESHOLD = {"on": "threshold", "count": 2}
HASH = {"on": "change", "state": "hash"}
BOUNDED = {"on": "time_limit", "after": "1m", "buffer": {"max_records": 5}}
EXPECTED = {"emit": {"on": "quiet", "after": "10m"}, "expected": {"table": "sensors/current", "key": ["id"]}}
EVENT = ("an event of its own", "one more record")
SUMS = {"name": "max(name)", "price": "sum(price)"}
ORDERED = {"x": "first(price)"}
REFUSED: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "the first stage": ([groups(key=None)], "the first stage reads records", "later stage"),
    "events": ([COLLECT, groups(key=["id"], reduce={"n": "count(*)"})], *EVENT),
    "flushes": ([{"reduce": SUMS, "emit": THRESHOLD}, groups()], *EVENT),
    "flushes of windows": ([{"reduce": SUMS, "emit": THRESHOLD, **HOUR}, groups()], *EVENT),
    "hashes": ([{**LATEST, "emit": HASH}, groups()], "`state: hash` keeps no values", "one more record"),
    "expected keys": ([{**LATEST, **EXPECTED}, groups()], "`expected` forgets a key", "one more record"),
    "latest": ([LATEST, groups(reduce="latest")], "only aggregates take values back", "sum(quantity)"),
    "the order": ([LATEST, groups(reduce=ORDERED)], "`first(price)` depends on the order", "max_by"),
    "a window": ([LATEST, groups(**HOUR)], "`window` does not go with `retract`", "Leave `window` out"),
    "a filter": ([LATEST, groups(filter="ok")], "`filter` does not go with `retract`", "Leave `filter`"),
    "a flush": ([LATEST, groups(emit=THRESHOLD)], "has gone out with a flush", "on: update"),
    "a bounded buffer": ([LATEST, groups(emit=BOUNDED)], "a state in each partition", "spill"),
    "quarantine": ([LATEST, groups(on_error="quarantine")], "it was never added", "Leave `on_error` out"),
    "a text": ([LATEST, groups(retract="yes")], "true or false", "retract: true"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_stage_that_cannot_retract_is_refused(what: str) -> None:
    stages, message, fix = REFUSED[what]
    ((_, actual, how),) = refused(*stages)
    assert (message in actual, fix in how) == (True, True), (actual, how)
