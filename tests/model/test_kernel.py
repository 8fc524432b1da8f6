"""The kernel's form of a stage."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.model.files import COLLECT, COUNT, HOUR, LATEST, made
from tidegate import kernel
from tidegate.errors import ConditionFailed
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.model.kernel_stages import deduplication_stage, kernel_stage, with_types
from tidegate.yaml.load import parse_case_pipeline


def stage(written: dict[str, Any], *later: dict[str, Any], **fields: Any) -> kernel.Stage:
    pipeline = made(written, *later, **fields)
    return kernel_stage(pipeline, pipeline.stages[-1])


def emit(**written: Any) -> kernel.Stage:
    return stage({**LATEST, "emit": written})


def change(**options: Any) -> kernel.Change:
    strategy = emit(on="change", **options).emit
    assert isinstance(strategy, kernel.Change)
    return strategy


ALL = ("price", "ok", "name")


@pytest.mark.parametrize(
    ("written", "reduce"),
    [
        (LATEST, kernel.Latest()),
        (COLLECT, kernel.Collect()),
        (
            {"reduce": {"n": "count(*)", "m": "count(ok)", "all": "collect_set(id)"}},
            kernel.Aggregates(
                (
                    kernel.Aggregate("n", "count"),
                    kernel.Aggregate("m", "count", "ok"),
                    kernel.Aggregate("all", "collect_set", "id"),
                )
            ),
        ),
    ],
    ids=["latest", "collect", "aggregates"],
)
def test_reduce_compiles_to_its_fold(written: dict[str, Any], reduce: kernel.Reduce) -> None:
    assert stage(written).reduce == reduce


@pytest.mark.parametrize(
    ("written", "window"),
    [
        (None, None),
        ({"tumbling": "1s", "grace": "5ms"}, kernel.Tumbling(1000, 5)),
        ({"hopping": "1s", "every": "500ms", "grace": "5ms"}, kernel.Hopping(1000, 500, 5)),
        ({"session": "1s", "grace": "5ms"}, kernel.Session(1000, 5)),
    ],
)
def test_window_compiles_to_kernel_window(written: Any, window: kernel.Window | None) -> None:
    assert stage({**COUNT, "window": written}).window == window


@pytest.mark.parametrize(
    ("written", "strategy"),
    [
        ({"on": "update"}, kernel.Update()),
        ({"on": "change"}, kernel.Change(ALL)),
        ({"on": "change", "heartbeat": "1h"}, kernel.Change(ALL, heartbeat_ms=3_600_000)),
        (
            {"on": "change", "heartbeat": "1h", "clock": "run"},
            kernel.Change(ALL, heartbeat_ms=3_600_000, clock="run"),
        ),
        ({"on": "change", "state": "hash"}, kernel.Change(ALL, state="hash")),
        ({"on": "time_limit", "after": "30s"}, kernel.TimeLimit(30_000)),
        ({"on": "threshold", "count": 5}, kernel.Threshold(count=5, since="arrival")),
        (
            {"on": "threshold", "count": 5, "after": "1s", "since": "last_flush"},
            kernel.Threshold(count=5, after_ms=1000, since="last_flush"),
        ),
        ({"on": "interval", "every": "1s"}, kernel.Interval(1000)),
        ({"on": "quiet", "after": "10m"}, kernel.Quiet(600_000)),
    ],
    ids=str,
)
def test_when_values_go_out(written: dict[str, Any], strategy: kernel.Emit) -> None:
    assert emit(**written).emit == strategy


def test_window_close_and_bytes_go_out_too() -> None:
    assert stage({**COUNT, **HOUR, "emit": {"on": "window_close"}}).emit == kernel.WindowClose()
    bytes_ = {"on": "threshold", "max_bytes": 9}
    assert stage({**COLLECT, "emit": bytes_}).emit == kernel.Threshold(max_bytes=9, since="arrival")


def test_what_is_the_same() -> None:
    assert change(equal="bytes", timestamp=True) == kernel.Change(ALL, equal=kernel.Bytes(), timestamp=True)
    assert change(columns=["ok"]) == kernel.Change(("ok",))
    assert change(ignore=["ok"], equal="bytes") == kernel.Change(("price", "name"), ("ok",), kernel.Bytes())
    within = {"within": {"price": "1%"}}
    assert change(equal=within, ignore=["name"]) == kernel.Change(
        ("price", "ok"), ("name",), kernel.Within({"price": kernel.Amount(Decimal(1), percent=True)})
    )


def test_the_same_by_sql() -> None:
    satisfies = change(equal={"sql": "old.price = new.price"})
    assert isinstance(satisfies.equal, kernel.SqlEqual)
    assert satisfies.compared == ALL
    assert satisfies.equal.sql.evaluate({"old": {"price": 1.0}, "new": {"price": 1.0}}) is True


def test_the_same_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    assert change(equal={"python": "shop:same"}) == kernel.Change(ALL, equal=kernel.PythonEqual("shop:same"))


def test_the_clock_is_that_of_emit() -> None:
    assert emit(on="update").clock == "stream"
    assert emit(on="interval", every="1s").clock == "run"
    assert emit(on="interval", every="1s", clock="stream").clock == "stream"


def test_where_uses_types_known_at_load() -> None:
    interval = {**LATEST, "emit": {"on": "interval", "every": "1m"}}
    condition = stage({**interval, "where": "coalesce(PRICE, 1) = 1"}).where
    assert condition is not None
    assert condition.tree == ("=", ("coalesce", ("column", "price"), ("literal", 1.0)), ("literal", 1.0))


@pytest.mark.parametrize(
    ("buffer", "bound"),
    [
        (None, None),
        ({"max_records": 5}, kernel.Bound(max_records=5, when_full="emit_early")),
        ({"max_bytes": 5, "when_full": "shut_down"}, kernel.Bound(max_bytes=5, when_full="shut_down")),
        ({"max_records": 5, "when_full": "spill"}, None),
        ({"when_full": "spill"}, None),
    ],
)
def test_a_buffer_is_bounded_unless_it_spills(buffer: Any, bound: kernel.Bound | None) -> None:
    assert emit(on="time_limit", after="1s", buffer=buffer).bound == bound


def test_the_buffer_of_final_values_shuts_down() -> None:
    written = {**COUNT, **HOUR, "emit": {"on": "window_close", "buffer": {"max_records": 5}}}
    assert stage(written).bound == kernel.FinalBound(max_records=5, when_full="shut_down")


BY_COLUMNS = {"deduplicate": {"columns": ["name"], "keep": "1h"}}


@pytest.mark.parametrize(
    ("source", "first"),
    [({}, "offset"), ({"deduplicate": "root"}, "root"), (BY_COLUMNS, "offset")],
    ids=["default", "root", "columns"],
)
def test_records_are_deduplicated_by_the_first_stage_only(source: dict[str, Any], first: str) -> None:
    pipeline = made(COUNT, COUNT, source=source)
    deduplicated = [kernel_stage(pipeline, parsed).deduplicate for parsed in pipeline.stages]
    assert deduplicated == [first, "none"]


def test_deduplicated_columns_get_their_own_stage() -> None:
    assert deduplication_stage(made(source={"deduplicate": "root"})) is None
    waiting = {**COUNT, "emit": {"on": "interval", "every": "1s"}}
    assert deduplication_stage(made(waiting, source=BY_COLUMNS)) == kernel.Stage(
        kernel.Latest(), kernel.Once(3_600_000), deduplicate="offset"
    )


def test_conditions_are_over_the_types_that_values_have() -> None:
    stage = {
        "name": "s",
        "window": {"tumbling": "1h"},
        "select": {"n": "hour(at)"},  # whose type the file alone does not tell
        "emit": {"on": "change", "equal": {"sql": "old.n * 2000000000 = new.n"}},
        "where": "n * 2000000000 > 0",
    }
    source = {"topics": ["t"], "format": "json", "columns": "at timestamp"}
    pipeline = parse_case_pipeline({"pipeline": "p", "source": source, "stages": [stage]}, "p")
    logic = kernel_stage(pipeline, pipeline.stages[0])
    typed = with_types(logic, pa.struct([("n", pa.int32())]), {})
    assert logic.where is not None
    assert logic.where.evaluate({"n": 2}) is True
    assert typed.where is not None
    with pytest.raises(ConditionFailed, match=r"too large for `int`"):
        typed.where.evaluate({"n": 2})
    assert isinstance(typed.emit, kernel.Change)
    assert isinstance(typed.emit.equal, kernel.SqlEqual)
    with pytest.raises(ConditionFailed, match=r"too large for `int`"):
        typed.emit.equal.sql.evaluate({"old": {"n": 2}, "new": {"n": 2}})
    with pytest.raises(ConditionFailed, match=r"computes with string"):
        with_types(logic, pa.struct([("n", pa.string())]), {})


def test_a_planned_condition_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the meaning that a condition had when the batch was planned, even if today's grammar refuses
    it.
    """
    interval = {**LATEST, "emit": {"on": "interval", "every": "1m"}, "where": "price > 1"}
    same = {**LATEST, "emit": {"on": "change", "equal": {"sql": "old.price = new.price"}}}
    pipeline = made(interval, same)
    loaded = read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1 of p/1")
    for place in (
        "tidegate.model.sql._parse",
        "tidegate.model.condition.parse",
        "tidegate.model.lexis.split",
    ):
        monkeypatch.setattr(place, lambda *_: pytest.fail("a text was read"))
    emitted = pa.struct([("price", pa.float64()), ("name", pa.string()), ("ok", pa.bool_())])
    for stage in loaded.stages:
        typed = with_types(kernel_stage(loaded, stage), emitted, {})
        if typed.where is not None:
            assert typed.where.evaluate({"price": 2.0}) is True
        else:
            assert isinstance(typed.emit, kernel.Change)
            assert isinstance(typed.emit.equal, kernel.SqlEqual)
