"""`window`: what is read, what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.model.files import COUNT, HOUR, LATEST, SOURCE, made, refused
from tidegate import kernel
from tidegate.errors import PipelineInvalid
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.model.kernel_stages import emitted_schema
from tidegate.yaml.load import parse_case_pipeline


def window(written: dict[str, Any]) -> Any:
    return made({**COUNT, "window": written}).stages[0].window


def test_a_tumbling_window_has_size_and_grace() -> None:
    tumbling = window({"tumbling": "1h", "grace": "10m"})
    assert isinstance(tumbling, kernel.Tumbling)
    assert (tumbling.size_ms, tumbling.grace_ms) == (3_600_000, 600_000)


def test_a_hopping_window_starts_every_so_often() -> None:
    hopping = window({"hopping": "10ms", "every": "5ms", "grace": "1s"})
    assert isinstance(hopping, kernel.Hopping)
    assert (hopping.size_ms, hopping.every_ms, hopping.grace_ms) == (10, 5, 1000)


def test_a_day_may_follow_a_local_clock() -> None:
    day = window({"tumbling": "1d", "timezone": "Europe/Berlin", "offset": "6h"})
    assert (day.timezone.name, day.offset_ms) == ("Europe/Berlin", 6 * 3_600_000)
    # 2026-03-29, on which the clock is set forward
    assert day.spans(1_774_800_000_000) == ((1_774_756_800_000, 1_774_843_200_000),)


def test_plan_has_the_time_zones_rules() -> None:
    pipeline = made({**COUNT, "window": {"tumbling": "1d", "timezone": "Europe/Berlin"}})
    planned = read_compiled(compile_pipeline(pipeline), pipeline.text, "a batch").stages[0].window
    assert isinstance(planned, kernel.Tumbling)
    assert planned.timezone is not None
    assert planned.timezone.rules.startswith("0+3600 323830800+7200 ")


def test_a_session_has_a_gap() -> None:
    session = window({"session": "15ms"})
    assert isinstance(session, kernel.Session)
    assert (session.gap_ms, session.grace_ms) == (15, 0)


def test_grace_is_0ms_by_default_and_may_be() -> None:
    assert window({"tumbling": "1s"}).grace_ms == 0
    assert window({"tumbling": "1s", "grace": "0ms"}).grace_ms == 0


def test_hop_can_be_as_long_as_its_window() -> None:
    assert window({"hopping": "1s", "every": "1s"}).every_ms == 1000


def test_a_window_may_be_null() -> None:
    assert made({**COUNT, "window": None}).stages[0].window is None


@pytest.mark.parametrize(
    ("written", "field", "part"),
    [
        ({"tumbling": "0s"}, ".tumbling", "has no length"),
        ({"tumbling": "1s", "grace": "-1s"}, ".grace", "'-1s' is not a duration"),
        ({"tumbling": "1s", "every": "1s"}, ".every", "`every` does not go with `tumbling: 1s`"),
        ({"session": "1s", "every": "1s"}, ".every", "`every` does not go with `session: 1s`"),
        ({"hopping": "1s"}, ".every", "`every` is missing"),
        ({"hopping": "1s", "every": "2s"}, ".every", "windows of 1s every 2s leave gaps"),
        ({"hopping": "1s", "every": "0s"}, ".every", "has no length"),
        ({"hopping": "30d", "every": "1ms"}, ".every", "each record would be in 2,592,000,000 windows"),
        ({"tumbling": "1d", "timezone": "Europe/Berln"}, ".timezone", "'Europe/Berln' is not a time zone"),
        ({"tumbling": "5h", "timezone": "Europe/Berlin"}, ".timezone", "windows of 5h begin differ from day"),
        (
            {"hopping": "36h", "every": "12h", "timezone": "Europe/Berlin"},
            ".timezone",
            "windows of 36h begin differ from day",
        ),
        ({"tumbling": "1h", "offset": "1h"}, ".offset", "cannot begin 1h later"),
        ({"session": "1h", "offset": "5m"}, ".offset", "`offset` does not go with `session: 1h`"),
        ({"cumulating": "1h", "every": "7m"}, ".every", "1h is not a multiple of 7m"),
        ({"cumulating": "1h"}, ".every", "`every` is missing"),
        (
            {"sliding": "1h", "timezone": "Europe/Berlin"},
            ".timezone",
            "`timezone` does not go with `sliding: 1h`",
        ),
        ({"hopping": "1s", "tumbling": "1s"}, "", "a window is one of `tumbling`, `hopping`"),
        ({"grace": "1s"}, "", "the window's kind is missing"),
        ({"tumbling": "1s", "grce": "1s"}, ".grce", "unknown field `grce` in `window`"),
        ({"tumbling": "1s", "size_ms": 5}, ".size_ms", "unknown field `size_ms`"),
        ("1h", "", "has to be a mapping, not '1h'"),
        (["1h"], "", "has to be a mapping, not a list"),
    ],
)
def test_a_mistake_in_a_window_is_reported(written: Any, field: str, part: str) -> None:
    ((actual_field, message, fix),) = refused({**COUNT, "window": written})
    assert (actual_field, part in message) == (f"stages.0.window{field}", True), (actual_field, message)
    assert fix


@pytest.mark.parametrize("overlapping", [{"sliding": "10m"}, {"cumulating": "1h", "every": "10m"}])
@pytest.mark.parametrize("reduce", ["latest", "collect"])
def test_overlapping_windows_take_only_aggregates(overlapping: dict[str, str], reduce: str) -> None:
    ((field, message, fix),) = refused({**LATEST, "reduce": reduce, "window": overlapping})
    assert field == "stages.0.reduce"
    assert "only aggregates fold into them" in message
    assert "last(x)" in fix


def test_threshold_empties_no_sliding_window() -> None:
    emit = {"on": "threshold", "count": 3}
    ((field, message, fix),) = refused({**COUNT, "window": {"sliding": "10m"}, "emit": emit})
    assert (field, "empties windows" in message, "window_close" in fix) == ("stages.0.emit", True, True)


def test_only_windows_have_late_records() -> None:
    assert made({**COUNT, **HOUR, "on_late": "quarantine"}).stages[0].on_late == "quarantine"
    ((field, message, fix),) = refused({**COUNT, "on_late": "quarantine"})
    assert (field, message) == ("stages.0.on_late", "without a window no record is late")
    assert "window:" in fix


LATE = {**COUNT, **HOUR, "name": "hours", "emit": {"on": "update"}, "on_late": "emit"}


def late_problems(stage: dict[str, Any], *sinks: dict[str, Any]) -> list[tuple[str, str, str]]:
    written = {"pipeline": "p", "source": SOURCE, "stages": [stage], "sinks": list(sinks)}
    with pytest.raises(PipelineInvalid) as caught:
        parse_case_pipeline(written, "p.yaml")
    return [(problem.field, problem.message, problem.fix) for problem in caught.value.problems]


TABLE: dict[str, Any] = {"kind": "table", "path": "out/late", "stage": "hours.late"}


def test_sink_gets_columns_of_late_records() -> None:
    pipeline = parse_case_pipeline(
        {"pipeline": "p", "source": SOURCE, "stages": [LATE], "sinks": [TABLE]}, "p.yaml"
    )
    late = pipeline.stage_of(pipeline.sinks[0])
    assert (late.name, late.window, late.emits_facts) == ("hours.late", pipeline.stages[0].window, True)
    assert set(late.emitted) == {*(column.name for column in pipeline.sources["source"].columns), "lateness"}
    assert late.types["lateness"] == "bigint"
    assert pipeline.published_stages == ("hours", "hours.late")
    assert pipeline.key_of(late) == pipeline.key_of(pipeline.stages[0])
    assert emitted_schema(pipeline, pipeline.sinks[0]).field("lateness").type == pa.int64()
    again = read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1")
    assert again.stage_of(again.sinks[0]) == late


def test_late_records_that_no_sink_reads_are_refused() -> None:
    ((field, message, fix),) = late_problems(LATE, {"kind": "table", "path": "out/hours", "stage": "hours"})
    assert (field, message) == ("sinks", "no sink reads `hours.late`")
    assert "stage: hours.late" in fix


def test_sink_of_late_records_needs_the_option() -> None:
    ((field, message, fix),) = late_problems({**LATE, "on_late": "drop"}, TABLE)
    assert (field, message) == ("sinks.0.stage", "the stage `hours` does not emit its late records")
    assert fix == "Write `on_late: emit` at the stage `hours`."


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"kind": "sql", "table": "late", "mode": "upsert"}, "would overwrite events"),
        ({"kind": "kafka", "topic": "late", "format": "debezium"}, "nothing replaces a late record"),
    ],
)
def test_late_records_replace_nothing(sink: dict[str, Any], message: str) -> None:
    ((_, reported, fix),) = late_problems(LATE, {**sink, "stage": "hours.late"})
    assert message in reported
    assert fix


def test_bounded_stage_emits_no_late_records() -> None:
    bounded = {"emit": {"on": "window_close", "buffer": {"max_records": 5, "when_full": "shut_down"}}}
    ((field, message, _),) = late_problems({**LATE, **bounded})
    assert (field, "bounded buffer" in message) == ("stages.0.on_late", True)


def test_column_named_lateness_is_refused() -> None:
    source = {**SOURCE, "columns": f"{SOURCE['columns']}, lateness int"}
    with pytest.raises(PipelineInvalid, match="late records have a column `lateness`"):
        parse_case_pipeline({"pipeline": "p", "source": source, "stages": [LATE]}, "p.yaml")
