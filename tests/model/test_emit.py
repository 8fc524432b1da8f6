"""`emit`: each way, its options, and what goes with what."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import pytest

from tests.model.files import COLLECT, COUNT, HOUR, LATEST, edited, made, refused
from tidegate import kernel
from tidegate.model.stage import Stage
from tidegate.yaml.load import parse_pipeline
from tidegate.yaml.tree import read as read_tree

WAYS: dict[str, dict[str, Any]] = {
    "update": {},
    "change": {},
    "window_close": {},
    "time_limit": {"after": "30s"},
    "threshold": {"count": 100},
    "interval": {"every": "10m"},
    "quiet": {"after": "10m"},
}
REDUCES = {"latest": LATEST, "collect": COLLECT, "aggregates": COUNT}
WINDOWS: dict[str, dict[str, Any]] = {
    "no window": {},
    "tumbling": {"window": {"tumbling": "1h"}},
    "hopping": {"window": {"hopping": "1h", "every": "30m"}},
    "session": {"window": {"session": "30m"}},
}


def stage(on: str, stage: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    base = (LATEST | HOUR if on == "window_close" else LATEST) if stage is None else stage
    return {**base, "emit": {"on": on, **WAYS[on], **options}}


def read(on: str, **options: Any) -> Any:
    return made(stage(on, **options)).stages[0].emit


def mistake(on: str, **options: Any) -> tuple[str, str, str]:
    ((field, message, fix),) = refused(stage(on, **options))
    return field.removeprefix("stages.0."), message, fix


COMBINATIONS = list(itertools.product(REDUCES, WAYS, WINDOWS))


@pytest.mark.parametrize(("reduce", "on", "window"), COMBINATIONS, ids=map(" ".join, COMBINATIONS))
def test_emit_combination_is_accepted_or_refused_with_fix(reduce: str, on: str, window: str) -> None:
    mistakes = refused(stage(on, {**REDUCES[reduce], **WINDOWS[window]}))
    if on == "window_close" and window == "no window":
        assert [message for _, message, _ in mistakes] == ["`on: window_close` needs a window"]
    elif on == "quiet" and window != "no window":
        assert [message for _, message, _ in mistakes] == [
            "`on: quiet` waits for the silence of a key, and not of a window"
        ]
    elif on == "change" and reduce == "collect":
        assert "does not go with `reduce: collect`" in mistakes[0][1]
    elif on == "change" and window == "session":
        assert [message for _, message, _ in mistakes] == [
            "each record changes its session: `on: change` does not go with `session`"
        ]
    else:
        assert mistakes == []
    assert all(fix for *_, fix in mistakes)


@pytest.mark.parametrize("on", WAYS)
def test_strategies_that_wait_use_the_run_clock(on: str) -> None:
    assert read(on).clock == ("stream" if on in ("update", "change") else "run")


@pytest.mark.parametrize("on", WAYS)
@pytest.mark.parametrize("clock", ["stream", "run"])
def test_the_clock_may_be_said(on: str, clock: str) -> None:
    assert read(on, clock=clock).clock == clock


def test_another_clock_is_refused() -> None:
    assert mistake("update", clock="wall") == (
        "emit.clock",
        "'wall' is not known",
        "Write one of `stream`, `run`.",
    )


@pytest.mark.parametrize("on", WAYS)
def test_stage_that_waits_or_has_windows_is_timed(on: str) -> None:
    plain: dict[str, Any] = HOUR if on == "window_close" else {}
    assert made(stage(on, {**LATEST, **plain})).stages[0].timed == (on not in ("update", "change"))
    if on not in ("window_close", "quiet"):
        assert made(stage(on, {**LATEST, **HOUR})).stages[0].timed


OPTIONS = ("columns", "ignore", "equal", "timestamp", "state", "heartbeat", "at_most_every", "buffer")
OPTIONS += ("after", "count", "max_bytes", "until", "since", "every", "early")
OPTIONS_BY_EMIT: dict[str, tuple[str, ...]] = {
    "update": (),
    "change": ("columns", "ignore", "equal", "timestamp", "state", "heartbeat", "at_most_every"),
    "window_close": ("buffer", "early"),
    "time_limit": ("after", "buffer"),
    "threshold": ("count", "max_bytes", "after", "until", "since"),
    "interval": ("every",),
    "quiet": ("after",),
}
STRANGERS = [(on, option) for on in WAYS for option in OPTIONS if option not in OPTIONS_BY_EMIT[on]]


@pytest.mark.parametrize(("on", "option"), STRANGERS, ids=[" ".join(case) for case in STRANGERS])
def test_an_option_of_another_way_is_refused(on: str, option: str) -> None:
    field, message, fix = mistake(on, **{option: 1})
    assert (field, message) == (f"emit.{option}", f"`{option}` does not go with `on: {on}`")
    assert fix == "Leave it out."


# change


def change(**options: Any) -> kernel.Change:
    emit = read("change", **options)
    assert isinstance(emit, kernel.Change)
    return emit


def test_change_compares_everything_exactly_by_default() -> None:
    emit = change()
    assert (emit.equal, emit.timestamp, emit.state) == (kernel.Exact(), False, "value")
    assert (emit.heartbeat_ms, emit.compared) == (None, ("price", "ok", "name"))


def test_change_compares_aggregates_too() -> None:
    emit = made({"reduce": {"n": "count(*)", "m": "max(id)"}, "emit": {"on": "change", "ignore": ["m"]}})
    assert isinstance(change_emit := emit.stages[0].emit, kernel.Change)
    assert change_emit.compared == ("n",)


def test_heartbeat_is_a_duration() -> None:
    assert change(heartbeat="1h").heartbeat_ms == 3_600_000


def test_changes_that_wait_run_by_the_clock() -> None:
    assert [change(**options).clock for options in ({}, {"at_most_every": "30s"})] == ["stream", "run"]
    assert change(at_most_every="30s", clock="stream").clock == "stream"
    assert change(at_most_every="30s").at_most_every_ms == change(at_most_every="30s").longest_hold_ms(None)


def test_stage_with_changes_that_wait_is_timed() -> None:
    timed = [made(stage("change", LATEST, **emit)).stages[0].timed for emit in ({}, {"at_most_every": "30s"})]
    assert timed == [False, True]


def test_clock_alone_emits_a_final_result() -> None:
    forms: list[dict[str, Any]] = [{}, {"early": {"every": "1m"}}, {"early": {"on": "change"}}]
    emits = [made({**HOUR, **COUNT, "emit": {"on": "window_close", **form}}).stages[0].emit for form in forms]
    assert [emit.fires_without_buffer for emit in emits] == [False, True, True]
    assert [emit.is_final for emit in emits] == [True, False, False]


def test_only_the_run_clock_triggers_a_heartbeat() -> None:
    beats = [change(heartbeat="1h", clock=clock).repeats_by_clock for clock in ("run", "stream")]
    assert beats == [True, False]
    assert not change(clock="run").repeats_by_clock


def test_bytes_may_have_the_timestamp_too() -> None:
    assert change(equal="bytes").timestamp is False
    assert change(equal="bytes", timestamp=True).timestamp is True


def test_tolerances_are_numbers_or_percentages() -> None:
    equivalence = change(equal={"within": {"price": "1.5%"}}).equal
    assert not isinstance(equivalence, str)
    assert equivalence.within == {"price": kernel.Amount(Decimal("1.5"), percent=True)}  # type: ignore[union-attr]
    assert change(equal={"within": {"price": 1}}).equal.within == {"price": kernel.Amount(Decimal(1))}  # type: ignore[union-attr]


def test_tolerance_is_the_exact_written_number() -> None:
    written = "0.10000000000000000000001"
    for form in ("{}", "'{}%'"):
        equal = "{within: {seen: " + form.format(written) + "}}"
        yaml_text = edited(("equal: exact", f"equal: {equal}"))
        json_text = json.dumps(read_tree(yaml_text.replace(written, "1.5"), "p.yaml").data)
        for text, file in ((yaml_text, "p.yaml"), (json_text.replace("1.5", written), "p.json")):
            emit = parse_pipeline(text, file).stages[0].emit
            assert isinstance(emit, kernel.Change)
            assert isinstance(emit.equal, kernel.Within)
            assert emit.equal.within == {"seen": kernel.Amount(Decimal(written), percent="%" in form)}
    assert change(equal={"within": {"price": 0.1}}).equal.within["price"].amount == Decimal("0.1")  # type: ignore[union-attr]


def test_tolerance_applies_to_numbers_and_unknown_types() -> None:
    select = {"a": "cents * 2", "b": "id", "c": "from_json(name, 'x int').x"}
    within = {"within": {"a": 0, "b": 1, "c": "5%"}}
    assert made({"select": select, "emit": {"on": "change", "equal": within}})


def test_equal_sql_sees_old_and_new_value() -> None:
    equivalence = change(equal={"sql": "abs(old.price - NEW.Price) < 0.5 and old.ok <=> new.ok"}).equal
    assert equivalence.sql.evaluate(  # type: ignore[union-attr]
        {"old": {"price": 1.0, "ok": None}, "new": {"price": 1.4, "ok": None}}
    )


def test_python_is_called_when_its_module_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "other, shop")
    assert change(equal={"python": "shop:same"}).equal.python == "shop:same"  # type: ignore[union-attr]
    assert change(equal={"python": "shop.compare:same"}).equal.python == "shop.compare:same"  # type: ignore[union-attr]


@pytest.mark.parametrize("trusted", ["", "shopping", "shop.other", "sh"])
def test_python_of_another_module_is_refused(monkeypatch: pytest.MonkeyPatch, trusted: str) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", trusted)
    field, message, fix = mistake("change", equal={"python": "shop.compare:same"})
    assert (field, message) == ("emit.equal.python", "the module `shop.compare` may not be called")
    assert "TIDEGATE_PYTHON_MODULES=shop.compare" in fix


@pytest.mark.parametrize("name", ["same", "shop:", ":same", "shop.:same", "shop:a.b", "os;x:y", "shop: same"])
def test_python_names_a_function_of_a_module(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    assert "does not name a function" in mistake("change", equal={"python": name})[1]


def test_hash_covers_what_is_compared_as_whole() -> None:
    assert change(state="hash").state == "hash"
    assert change(state="hash", equal="bytes", timestamp=True).state == "hash"


CHANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"columns": ["prise"]}, "columns.0", "the stage emits no column `prise`"),
    ({"columns": ["id"]}, "columns.0", "the stage emits no column `id`"),
    ({"columns": ["price"], "ignore": ["ok"]}, "ignore", "are both given"),
    ({"ignore": ["price", "ok", "name"]}, "", "leaves nothing to compare"),
    ({"equal": "exactly"}, "equal", "'exactly' is not known"),
    ({"equal": 5}, "equal", "5 is not known"),
    ({"equal": {}}, "equal", "does not say how to compare"),
    ({"equal": {"within": {"price": 1}, "sql": "true"}}, "equal", "`within`, `sql` are given at once"),
    ({"equal": {"within": {"price": 1}, "x": 1}}, "equal.x", "unknown field `x` in `equal`"),
    ({"equal": {"within": {}}}, "equal.within", "no column has a tolerance"),
    ({"equal": {"within": {"prise": 1}}}, "equal.within.prise", "`prise` is not a column that is compared"),
    ({"equal": {"within": {"ok": 1}}}, "equal.within.ok", "`ok` is boolean, and has no distance"),
    ({"equal": {"within": {"name": 1}}}, "equal.within.name", "`name` is string, and has no distance"),
    ({"equal": {"within": {"price": -1}}}, "equal.within.price", "-1 is not a tolerance"),
    ({"equal": {"within": {"price": "1"}}}, "equal.within.price", "'1' is not a tolerance"),
    ({"equal": {"within": {"price": "x%"}}}, "equal.within.price", "'x%' is not a tolerance"),
    ({"equal": {"within": {"price": "inf%"}}}, "equal.within.price", "is not a tolerance"),
    ({"equal": {"within": {"price": "nan%"}}}, "equal.within.price", "is not a tolerance"),
    ({"equal": {"within": {"price": True}}}, "equal.within.price", "true is not a tolerance"),
    ({"equal": {"within": {"price": None}}}, "equal.within.price", "null is not a tolerance"),
    ({"columns": ["ok"], "equal": {"within": {"price": 1}}}, "equal.within.price", "not a column that is"),
    ({"equal": {"sql": "price = 1"}}, "equal.sql", "the column `price` does not exist"),
    ({"equal": {"sql": "old.id = 1"}}, "equal.sql", "`old` has no field `id`"),
    ({"equal": {"sql": "old = new"}}, "equal.sql", "is compared as a whole"),
    ({"ignore": ["ok"], "equal": {"sql": "old.ok"}}, "equal.sql", "`old` has no field `ok`"),
    ({"equal": {"sql": "old.price - new.price"}}, "equal.sql", "neither true nor false"),
    ({"equal": {"sql": "sha2(old.name, 256) = 'x'"}}, "equal.sql", "a condition cannot call `sha2`"),
    ({"equal": {"sql": 5}}, "equal.sql", "has to be text, not 5"),
    ({"timestamp": True}, "timestamp", "goes with `equal: bytes` only"),
    ({"timestamp": "yes", "equal": "bytes"}, "timestamp", "true or false"),
    (
        {"state": "hash", "equal": {"within": {"price": 1}}},
        "state",
        "hashes can only be compared for equality",
    ),
    ({"state": "hash", "equal": {"sql": "old.ok = new.ok"}}, "state", "hashes can only be compared"),
    ({"state": "md5"}, "state", "'md5' is not known"),
    ({"heartbeat": 5}, "heartbeat", "5 is not a duration"),
    ({"heartbeat": "0s"}, "heartbeat", "has no length"),
    ({"heartbeat": "1h", "state": "hash", "clock": "run"}, "clock", "if the state has only its hash"),
    ({"at_most_every": "0s"}, "at_most_every", "has no length"),
    ({"at_most_every": "30s", "state": "hash"}, "at_most_every", "cannot wait"),
    ({"at_most_every": "30s", "heartbeat": "29s"}, "at_most_every", "more often than `at_most_every`"),
    ({"heartbeat_ms": 5}, "heartbeat_ms", "unknown field `heartbeat_ms`"),
]


@pytest.mark.parametrize(("options", "field", "part"), CHANGES, ids=[str(case[0]) for case in CHANGES])
def test_a_mistake_in_change_is_reported(options: dict[str, Any], field: str, part: str) -> None:
    actual_field, message, fix = mistake("change", **options)
    assert (actual_field, part in message) == (f"emit.{field}".rstrip("."), True), (actual_field, message)
    assert fix


def test_state_hash_of_a_python_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    assert mistake("change", equal={"python": "shop:same"}, state="hash")[0] == "emit.state"


# what waits


def test_bounded_time_limit_has_a_buffer() -> None:
    assert read("time_limit").buffer is None
    emit = read("time_limit", buffer={"max_records": 1000})
    assert isinstance(emit, kernel.TimeLimit)
    assert emit.after_ms == 30_000
    assert emit.buffer is not None
    assert (emit.buffer.max_records, emit.buffer.max_bytes, emit.buffer.when_full) == (
        1000,
        None,
        "emit_early",
    )


def test_window_close_buffer_shuts_down_by_default() -> None:
    emit = read("window_close", buffer={"max_bytes": 5})
    assert isinstance(emit, kernel.WindowClose)
    assert emit.buffer is not None
    assert emit.buffer.when_full == "shut_down"


@pytest.mark.parametrize("on", ["time_limit", "window_close"])
def test_a_buffer_that_spills_needs_no_bound(on: str) -> None:
    assert read(on, buffer={"when_full": "spill"}).buffer.when_full == "spill"
    assert read(on, buffer={"when_full": "spill", "max_records": 5}).buffer.max_records == 5


def test_threshold_is_a_count_bytes_or_time() -> None:
    emit = read("threshold", after="60s", since="last_flush")
    assert isinstance(emit, kernel.Threshold)
    assert (emit.count, emit.max_bytes, emit.after_ms, emit.since) == (100, None, 60_000, "last_flush")
    events = made({**COLLECT, "emit": {"on": "threshold", "max_bytes": 5}}).stages[0].emit
    assert isinstance(events, kernel.Threshold)
    assert (events.count, events.max_bytes, events.since) == (None, 5, "arrival")


def test_after_starts_at_arrival_except_under_stream_clock() -> None:
    sinces = [read("threshold", after="60s", **options) for options in ({}, {"clock": "stream"})]
    assert [emit.since for emit in sinces if isinstance(emit, kernel.Threshold)] == ["arrival", "first_event"]


WAITS: list[tuple[str, dict[str, Any], str, str]] = [
    ("time_limit", {"after": None}, "after", "null is not a duration"),
    ("time_limit", {"buffer": {}}, "buffer", "the buffer has no bound"),
    ("time_limit", {"buffer": {"when_full": "shut_down"}}, "buffer", "the buffer has no bound"),
    ("time_limit", {"buffer": {"max_records": 0}}, "buffer.max_records", "too small"),
    ("time_limit", {"buffer": {"max_bytes": "5"}}, "buffer.max_bytes", "a whole number"),
    ("time_limit", {"buffer": {"max_records": 5, "when_full": "drop"}}, "buffer.when_full", "not known"),
    ("time_limit", {"buffer": {"max_record": 5}}, "buffer.max_record", "unknown field `max_record`"),
    (
        "window_close",
        {"buffer": {"max_records": 5, "when_full": "emit_early"}},
        "buffer.when_full",
        "never early",
    ),
    ("window_close", {"buffer": {}}, "buffer", "the buffer has no bound"),
    ("threshold", {"count": None}, "", "there is no threshold"),
    ("threshold", {"count": 0}, "count", "too small"),
    ("threshold", {"since": "arrival"}, "", "`since` says when `after` starts"),
    ("threshold", {"since": "last_flush"}, "", "`since` says when `after` starts"),
    ("threshold", {"since": "now"}, "since", "not known"),
    ("threshold", {"max_bytes": 5}, "max_bytes", "only `reduce: collect` keeps"),
    ("interval", {"every": "1"}, "every", "'1' is not a duration"),
]


@pytest.mark.parametrize(("on", "options", "field", "part"), WAITS, ids=[str(case[:2]) for case in WAITS])
def test_a_mistake_in_what_waits_is_reported(on: str, options: dict[str, Any], field: str, part: str) -> None:
    mistakes = refused(stage(on, **options))
    fields = [path.removeprefix("stages.0.emit").lstrip(".") for path, *_ in mistakes]
    assert (field, True) in [
        (name, part in message) for name, (_, message, _) in zip(fields, mistakes, strict=True)
    ]
    assert all(fix for *_, fix in mistakes)


@pytest.mark.parametrize(
    ("on", "missing"), [("time_limit", "after"), ("interval", "every"), ("quiet", "after")]
)
def test_what_waits_needs_its_time(on: str, missing: str) -> None:
    ((field, message, fix),) = refused({**LATEST, "emit": {"on": on}})
    assert (field, message) == (f"stages.0.emit.{missing}", f"`{missing}` is missing")
    assert f"{missing}: " in fix


def test_without_a_window_none_can_close() -> None:
    mistakes = refused({**COUNT, "emit": {"on": "window_close"}, "window": {"tumbling": "x"}})
    assert [field for field, *_ in mistakes] == ["stages.0.window.tumbling"], "a wrong window is one"


def test_a_stage_is_what_was_written_after_all() -> None:
    assert isinstance(made(stage("interval")).stages[0], Stage)
