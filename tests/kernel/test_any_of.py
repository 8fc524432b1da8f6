"""`emit: {any: […]}`: a value is emitted when one of several triggers fires."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Record
from tests.kernel.model.strategies import Case, cases, histories
from tests.kernel.test_against_model import assert_alike, filled
from tests.model.files import made, refused
from tidegate.kernel.strategies.any_of import AnyOf

CHANGE = {"on": "change", "equal": {"within": {"i": 5}}}
INTERVAL = {"on": "interval", "every": "50ms"}
LIMIT = {"on": "time_limit", "after": "30ms"}
LATEST = {"name": "out", "reduce": "latest", "select": {"i": "i"}}


def records(*values: tuple[int | None, int], start: int = 1) -> tuple[Record, ...]:
    """Records of one key and partition: value, or None for a tombstone, and timestamp."""
    return tuple(
        Record("a", None if i is None else {"i": i}, "in", 0, offset, timestamp)
        for offset, (i, timestamp) in enumerate(values, start)
    )


def run(*batches: Batch, triggers: list[dict[str, Any]], clock: str = "run") -> Kernel:
    kernel = Kernel(Case({**LATEST, "emit": {"any": triggers, "clock": clock}}))
    for batch in batches:
        kernel.apply(batch)
    return kernel


def emitted(kernel: Kernel) -> list[tuple[Any, int, str, int]]:
    """Value, timestamp, reason and instant of the emissions."""
    return [
        (emission.value and emission.value["i"], emission.timestamp, emission.reason, emission.at)
        for emission in kernel.emissions
    ]


def test_change_goes_out_at_once_and_drift_later() -> None:
    kernel = run(Batch(records((10, 0), (12, 10), (30, 20), (33, 25)), clock=60), triggers=[CHANGE, INTERVAL])
    assert emitted(kernel) == [(10, 0, "new", 0), (30, 20, "changed", 20), (33, 25, "interval", 50)]


def test_emission_of_one_trigger_resets_the_others() -> None:
    kernel = run(Batch(records((10, 0), (12, 10), (30, 20)), clock=200), triggers=[CHANGE, INTERVAL])
    assert emitted(kernel) == [(10, 0, "new", 0), (30, 20, "changed", 20)]


def test_unchanged_value_goes_out_by_the_timer() -> None:
    kernel = run(Batch(records((10, 0), (10, 10)), clock=200), triggers=[CHANGE, LIMIT])
    assert emitted(kernel) == [(10, 0, "new", 0), (10, 10, "time_limit", 40)]


@pytest.mark.parametrize(
    ("first", "reason", "at"), [(25, "interval", 50), (5, "time_limit", 35), (20, "interval", 50)]
)
def test_earliest_timer_fires_and_names_itself(first: int, reason: str, at: int) -> None:
    kernel = run(Batch(records((1, first)), clock=200), triggers=[INTERVAL, LIMIT])
    assert emitted(kernel) == [(1, first, reason, at)]


def test_deletion_goes_out_at_once() -> None:
    kernel = run(Batch(records((1, 0), (None, 10)), clock=200), triggers=[CHANGE, INTERVAL])
    assert emitted(kernel) == [(1, 0, "new", 0), (None, 10, "deleted", 10)]
    assert not kernel.state[-1]["live"]


def test_value_waits_in_the_state() -> None:
    kernel = run(
        Batch(records((10, 0), (11, 10)), clock=20), Batch((), clock=49), triggers=[CHANGE, INTERVAL]
    )
    assert kernel.buffered().records == 1
    kernel.apply(Batch((), clock=50))
    assert emitted(kernel)[1:] == [(11, 10, "interval", 50)]


def test_drain_emits_what_waits() -> None:
    kernel = run(Batch(records((10, 0), (11, 10)), clock=20), triggers=[CHANGE, INTERVAL])
    kernel.drain()
    assert emitted(kernel)[1:] == [(11, 10, "drained", 20)]


@examples(100)
@given(cases(emits=["any"]), histories(), st.integers(1, 7), st.booleans(), st.booleans())
def test_kernel_combines_triggers_as_the_model(
    case: Case, batches: list[Batch], arrow_rows: int, sparing: bool, drained: bool
) -> None:
    kernel, model = Kernel(case, arrow_rows, sparing), case.model()
    assert not filled(model, batches, drained)
    assert not filled(kernel, batches, drained)
    assert_alike(kernel, model, ordered=True)


def any_of(**emit: Any) -> AnyOf:
    strategy = made({"emit": {"any": [{"on": "change"}, INTERVAL], **emit}}).stages[0].emit
    assert isinstance(strategy, AnyOf)
    return strategy


def test_triggers_have_the_clock_of_the_stage() -> None:
    assert [any_of().clock, any_of(clock="stream").clock] == ["run", "stream"]
    of_trigger = any_of(any=[{"on": "change"}, {**INTERVAL, "clock": "stream"}])
    assert [of_trigger.clock, *(trigger.clock for trigger in of_trigger.triggers)] == ["stream"] * 3


def test_first_trigger_decides_how_long_values_wait() -> None:
    assert any_of(any=[{"on": "change"}, INTERVAL, LIMIT]).longest_hold_ms(None) == 30
    assert any_of().functions == {}


HOUR = {"window": {"session": "1h"}}
MISTAKES: list[tuple[dict[str, Any], list[dict[str, Any]], str, str]] = [
    ({}, [{"on": "change"}], "emit.any", "only one trigger"),
    ({}, [INTERVAL, INTERVAL], "emit.any", "two triggers `interval`"),
    ({}, [{"on": "change"}, {"on": "update"}], "emit.any.1", "no other trigger would fire"),
    ({}, [{"on": "change"}, {"on": "threshold", "count": 5}], "emit.any.1", "empties the value"),
    ({}, [{"on": "window_close"}, INTERVAL], "emit.any.0", "final value"),
    ({}, [{"on": "quiet", "after": "1m"}, INTERVAL], "emit.any.0", "starts its time anew"),
    ({}, [{"on": "change"}, {"on": "interwal"}], "emit.any.1.on", "'interwal' is not known"),
    ({}, [{"on": "change"}, {"on": "interval"}], "emit.any.1.every", "`every` is missing"),
    ({}, [{"on": "change"}, {}], "emit.any.1.on", "`on` is missing"),
    ({}, [{"on": "change", "state": "hash"}, INTERVAL], "emit.any", "`state: hash` does not have"),
    ({}, [{"on": "change", "heartbeat": "1h"}, INTERVAL], "emit.any", "between heartbeats"),
    ({}, [{"on": "change", "at_most_every": "1h"}, INTERVAL], "emit.any", "more often than"),
    ({}, [{"on": "change"}, {**LIMIT, "buffer": {"max_records": 5}}], "emit.any", "a bounded buffer"),
    ({}, [{"on": "change", "columns": ["nme"]}, INTERVAL], "emit.any.0.columns.0", "no column `nme`"),
    ({}, [{"on": "change", "clock": "stream"}, {**LIMIT, "clock": "run"}], "emit", "have 2 clocks"),
    ({"reduce": "collect"}, [{"on": "change"}, INTERVAL], "emit", "events are not compared"),
    (HOUR, [{"on": "change"}, INTERVAL], "emit", "each record changes its session"),
]


@pytest.mark.parametrize(("stage", "triggers", "field", "part"), MISTAKES, ids=range(len(MISTAKES)))
def test_triggers_that_do_not_go_together_are_refused(
    stage: dict[str, Any], triggers: list[dict[str, Any]], field: str, part: str
) -> None:
    (mistake,) = refused({**stage, "emit": {"any": triggers}})
    assert mistake[0].endswith(field)
    assert part in mistake[1]
    assert mistake[2]


def test_option_beside_any_is_refused() -> None:
    ((field, message, _),) = refused({"emit": {"any": [{"on": "change"}, INTERVAL], "every": "1m"}})
    assert field.endswith("emit.every")
    assert "`every` does not go with" in message


def test_unknown_strategy_lists_the_known_ones() -> None:
    ((field, _, fix),) = refused({"emit": {"on": "chnge"}})
    assert field.endswith("emit.on")
    assert fix == "Did you mean `change`?"
