"""What a pipeline file without mistakes becomes."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.model.files import GOOD, edited, good
from tidegate import kernel
from tidegate.model.columns import Column
from tidegate.model.quality import QualityCheck
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.sinks.table.model import TableSink
from tidegate.yaml.load import load_pipeline, parse_case_pipeline, parse_pipeline

SMALL = """\
pipeline: small
source: {topics: [t], format: string}
stages: [{name: s, emit: {on: update}}]
sinks: [{kind: table}]
"""


def small(format_: str = "string", source: str = "", stage: str = "") -> str:
    text = SMALL.replace("format: string", f"format: {format_}{source}")
    return text.replace("name: s", f"name: s{stage}")


def test_every_field_of_the_contract_is_read() -> None:
    pipeline = good()
    assert (pipeline.pipeline, pipeline.generation, pipeline.schedule) == ("levels", 2, "*/5 * * * *")
    assert pipeline.sources["source"].topics == ("stock",)
    assert pipeline.sources["source"].columns[:2] == (
        Column(name="storeId", type="string"),
        Column(name="id", type="bigint"),
    )
    assert pipeline.sources["source"].max_records == 5_000_000
    assert pipeline.stages[0].select == {"isAvailable": "quantity > 0", "seen": "seenAt"}
    assert pipeline.stages[0].where == "isAvailable"
    assert pipeline.sinks == (
        KafkaSink(kind="kafka", topic="availability", with_key=True),
        TableSink(kind="table", path="out/levels", stage="levels"),
    )
    assert pipeline.quality == (QualityCheck(suite="availability", on_failure="stop"),)


def test_what_is_left_out_has_its_default() -> None:
    pipeline = parse_pipeline(SMALL, "p.yaml")
    assert (pipeline.generation, pipeline.schedule, pipeline.quality) == (1, None, ())
    source = pipeline.sources["source"]
    assert (source.key, source.timestamp, source.max_records) == (None, "record", None)
    assert (source.deduplicate, source.start) == ("offset", "earliest")
    assert pipeline.key_of(pipeline.stages[0]) == ()


def test_the_hash_is_that_of_the_exact_text() -> None:
    assert good().text == GOOD
    assert good().hash == hashlib.sha256(GOOD.encode()).hexdigest()


def test_any_edit_makes_another_hash() -> None:
    assert parse_pipeline(GOOD + "# a word\n", "p.yaml").hash != good().hash


def test_pipeline_text_keeps_its_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert load_pipeline(path).text == GOOD.replace("\n", "\r\n")


def test_a_pipeline_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        good().pipeline = "other"  # type: ignore[misc]


def test_a_pipeline_survives_the_way_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(good())) == good()


def test_strings_have_the_one_column_value() -> None:
    assert parse_pipeline(small("string"), "p").sources["source"].columns == (
        Column(name="value", type="string"),
    )


def test_bytes_have_the_one_column_value() -> None:
    assert parse_pipeline(small("bytes"), "p").sources["source"].columns == (
        Column(name="value", type="binary"),
    )


def test_missing_select_emits_all_columns_in_order() -> None:
    text = small("json", ', columns: "b int, `a-b` string"')
    assert parse_pipeline(text, "p").stages[0].select == {"b": "`b`", "a-b": "`a-b`"}


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("2026-01-31T00:00:00Z", 1769817600000),
        ('"2026-01-31 02:00:00.250+02:00"', 1769817600250),
        ("2026-01-31T00:00-00:30", 1769819400000),
        ("1769817600000", 1769817600000),
        ("0", 0),
    ],
)
def test_a_start_in_time_becomes_milliseconds(written: str, milliseconds: int) -> None:
    assert good(("start: earliest", f"start: {written}")).sources["source"].start == milliseconds


def test_start_may_be_latest() -> None:
    assert good(("start: earliest", "start: latest")).sources["source"].start == "latest"


@pytest.mark.parametrize("column", ["seenAt", "record"])
def test_the_timestamp_is_the_records_or_a_columns(column: str) -> None:
    assert good(("timestamp: record", f"timestamp: {column}")).sources["source"].timestamp == column


def test_on_is_a_word_and_not_a_boolean() -> None:
    assert isinstance(good().stages[0].emit, kernel.Change)
    assert isinstance(parse_pipeline(SMALL, "p").stages[0].emit, kernel.Update)


def compared(options: str) -> tuple[str, ...]:
    emit = good(("equal: exact", options)).stages[0].emit
    assert isinstance(emit, kernel.Change)
    return emit.compared


def test_all_emitted_columns_are_compared() -> None:
    assert compared("equal: exact") == ("isAvailable", "seen")


def test_columns_restrict_what_is_compared() -> None:
    assert compared("columns: [seen]") == ("seen",)


def test_ignore_restricts_what_is_compared() -> None:
    assert compared("ignore: [seen]") == ("isAvailable",)


def test_state_value_is_what_is_built() -> None:
    assert compared("state: value") == ("isAvailable", "seen")


def test_sinks_are_named_after_kind_and_place() -> None:
    assert [sink.name for sink in good().sinks] == ["kafka:availability", "table:out/levels"]
    assert parse_pipeline(SMALL, "p").sinks[0].name == "table"


def test_a_key_column_may_be_selected_as_itself() -> None:
    assert "id" in good(('seen: "seenAt"', 'id: "`id`"')).stages[0].select


def test_a_pipeline_may_be_json() -> None:
    text = (
        '{"pipeline": "p", "source": {"topics": ["t"], "format": "bytes"},\n\t"sinks": [{"kind": "table"}],'
    )
    text += '"stages": [{"name": "s", "emit": {"on": "update"}}]}'
    assert parse_pipeline(text, "p.json").pipeline == "p"


def test_case_needs_no_schedule_generation_or_sinks() -> None:
    data = {
        "pipeline": "case",
        "source": {"topics": ["in"], "format": "json", "columns": "value bigint"},
        "stages": [{"name": "out", "emit": {"on": "update"}}],
    }
    pipeline = parse_case_pipeline(data, "case.json")
    assert (pipeline.generation, pipeline.schedule, pipeline.sinks) == (1, None, ())
    assert pipeline.hash == parse_case_pipeline(dict(reversed(data.items())), "other.json").hash


def test_comments_and_blank_lines_mean_nothing() -> None:
    assert parse_pipeline("# hello\n\n" + edited(), "p").stages == good().stages
