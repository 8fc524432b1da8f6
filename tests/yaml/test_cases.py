"""Case files: their form, and what they become."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.model.files import GOOD
from tidegate.errors import PipelineInvalid
from tidegate.yaml.cases import CaseRecord, Tick, load_cases, parse_input, read_cases
from tidegate.yaml.load import parse_pipeline

INLINE = """\
name: one
pipeline:
  pipeline: case
  source: {topics: [in, other], format: json, columns: "value bigint"}
  stages: [{name: out, emit: {on: update}}]
input:
  - {key: a, value: {value: 1}, timestamp: 5}
expect:
  emissions:
    a: [{value: {value: 1}, timestamp: 5}]
"""
STREAMS_CASES = Path(__file__).resolve().parents[1] / "conformance" / "kafka-streams"
# as Kafka Streams' own cases are written
STREAMS = {
    "name": "tumbling-final",
    "pipeline": {
        "pipeline": "case",
        "source": {"topics": ["in"], "format": "json", "columns": "value bigint"},
        "stages": [
            {
                "name": "out",
                "reduce": {"value": "count(*)"},
                "emit": {"on": "window_close", "clock": "stream", "buffer": {"max_records": 2}},
                "window": {"tumbling": "10ms", "grace": "5ms"},
            }
        ],
    },
    "input": [{"key": "c", "value": {"value": 1}, "timestamp": 5}],
    "expect": {
        "emissions": {"c": [{"value": {"value": 1}, "timestamp": 5, "window": [0, 10]}]},
        "late_dropped": 2,
    },
}


def write(folder: Path, text: str, name: str = "case.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def records(folder: Path, *lines: str) -> list[CaseRecord | Tick]:
    text = INLINE.replace(
        "  - {key: a, value: {value: 1}, timestamp: 5}", "\n".join(f"  - {li}" for li in lines)
    )
    return list(load_cases(write(folder, text))[0].input)


def problems(path: Path) -> list[tuple[int, str, str]]:
    with pytest.raises(PipelineInvalid) as caught:
        load_cases(path)
    return [(problem.line, problem.field, problem.message) for problem in caught.value.problems]


def test_a_case_has_name_pipeline_input_and_expectation(tmp_path: Path) -> None:
    (case,) = load_cases(write(tmp_path, INLINE))
    assert case.name == "one"
    assert case.pipeline.sources["source"].topics == ("in", "other")
    assert case.input == (CaseRecord("a", b'{"value": 1}', 5, "in", 0, 0),)
    assert case.expect.emissions is not None
    assert [(emission.value, emission.timestamp) for emission in case.expect.emissions["a"]] == [
        ({"value": 1}, 5)
    ]


def test_offsets_count_up_per_topic_and_partition(tmp_path: Path) -> None:
    steps = records(
        tmp_path,
        "{key: a, value: {}, timestamp: 1}",
        "{key: a, value: {}, timestamp: 1, partition: 1}",
        "{key: a, value: {}, timestamp: 1, offset: 7}",
        "{key: a, value: {}, timestamp: 1}",
        "{key: a, value: {}, timestamp: 1, topic: other}",
    )
    positions = [(step.topic, step.partition, step.offset) for step in steps if isinstance(step, CaseRecord)]
    assert positions == [("in", 0, 0), ("in", 1, 0), ("in", 0, 7), ("in", 0, 8), ("other", 0, 0)]


def test_a_null_value_is_a_tombstone(tmp_path: Path) -> None:
    assert records(tmp_path, "{key: a, value: null, timestamp: 1}") == [CaseRecord("a", None, 1, "in")]


def test_a_raw_value_is_taken_as_it_is(tmp_path: Path) -> None:
    assert records(tmp_path, "{key: a, raw: '{no', timestamp: 1}") == [CaseRecord("a", b"{no", 1, "in")]


def test_bytes_are_written_as_base64(tmp_path: Path) -> None:
    assert records(tmp_path, "{base64: AAH/, timestamp: 1}") == [CaseRecord(None, b"\0\x01\xff", 1, "in")]


@pytest.mark.parametrize(
    ("source", "value", "payload"),
    [
        ("format: avro, schema: stock.avsc", "{storeId: s, id: 1, quantity: null}", b"\x02s\x02\x00"),
        ("format: avro, schema: stock.avsc, registry: {}", "null", None),
    ],
)
def test_avro_case_value_is_written_like_a_default(
    tmp_path: Path, source: str, value: str, payload: bytes | None
) -> None:
    assert binary_case(tmp_path, source, f"value: {value}") == payload


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        ("format: avro, schema: stock.avsc", "value: {storeId: 5, id: 1}", "no `shop.Stock`"),
        ("format: protobuf, schema: stock.proto, message: shop.Stock", "value: {}", "cannot be made of JSON"),
        ('format: avro, registry: {}, columns: "id int"', "base64: AA==", "without a schema registry"),
        ("format: avro, schema: stock.avsc", "base64: '='", "'=' is not base64"),
        ("format: avro, schema: stock.avsc", "base64: AA==, raw: x", "`raw` and `base64` are both given"),
    ],
)
def test_impossible_binary_case_value_is_refused(tmp_path: Path, source: str, value: str, why: str) -> None:
    with pytest.raises(PipelineInvalid, match=why):
        binary_case(tmp_path, source, value)


def binary_case(folder: Path, source: str, value: str) -> bytes | None:
    """The value of the one record of a case whose schemas lie beside it."""
    copytree(Path(__file__).resolve().parents[1] / "model" / "schemas", folder, dirs_exist_ok=True)
    stages = "[{name: p, emit: {on: change}}]"
    pipeline = f"{{pipeline: p, source: {{topics: [in], {source}}}, stages: {stages}}}"
    file = folder / "case.yaml"
    file.write_text(
        f"name: n\npipeline: {pipeline}\ninput: [{{{value}, timestamp: 1}}]\nexpect: {{emissions: {{}}}}"
    )
    (case,) = load_cases(file)
    (record,) = case.input
    assert isinstance(record, CaseRecord)
    return record.payload


def test_a_record_needs_no_key(tmp_path: Path) -> None:
    assert records(tmp_path, "{value: 1, timestamp: 1}") == [CaseRecord(None, b"1", 1, "in")]


def test_tick_ends_a_batch_and_sets_its_clock(tmp_path: Path) -> None:
    assert records(tmp_path, "{tick: 60000}") == [Tick(60000)]


@pytest.mark.parametrize("written", ["{h: x}", "[[h, x]]"])
def test_headers_are_a_mapping_or_a_list(tmp_path: Path, written: str) -> None:
    (record,) = records(tmp_path, f"{{value: 1, timestamp: 1, headers: {written}}}")
    assert isinstance(record, CaseRecord)
    assert record.headers == (("h", "x"),)


def test_header_names_may_repeat_in_order(tmp_path: Path) -> None:
    (record,) = records(tmp_path, "{value: 1, timestamp: 1, headers: [[h, x], [h, y]]}")
    assert isinstance(record, CaseRecord)
    assert record.headers == (("h", "x"), ("h", "y"))


def test_text_format_value_is_the_text(tmp_path: Path) -> None:
    text = INLINE.replace('format: json, columns: "value bigint"', "format: string")
    path = write(
        tmp_path, text.replace("value: {value: 1}, timestamp: 5}\nexpect", "value: hi, timestamp: 5}\nexpect")
    )
    assert load_cases(path)[0].input == (CaseRecord("a", b"hi", 5, "in"),)


def test_text_format_value_of_another_type_is_refused(tmp_path: Path) -> None:
    text = INLINE.replace('format: json, columns: "value bigint"', "format: bytes")
    assert problems(write(tmp_path, text)) == [
        (7, "input.0.value", "the value of `format: bytes` is a text, not a mapping")
    ]


def test_a_file_may_hold_several_cases(tmp_path: Path) -> None:
    lines = [f"    {line}" for line in INLINE.splitlines()]
    lines[0] = "  - name: two"
    text = "cases:\n" + "\n".join(lines) + "\n" + "\n".join(lines).replace("name: two", "name: three")
    assert [case.name for case in load_cases(write(tmp_path, text))] == ["two", "three"]


def test_case_can_name_its_pipeline_by_path(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "levels.yaml")
    folder = tmp_path / "cases" / "levels"
    folder.mkdir(parents=True)
    path = write(folder, "name: x\npipeline: ../../levels.yaml\ninput: []\nexpect: {emissions: {}}\n")
    assert load_cases(path)[0].pipeline.hash == parse_pipeline(GOOD, "p").hash


def test_case_reports_mistakes_of_its_pipeline_file(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("generation: 2", "generation: 0"), "levels.yaml")
    path = write(tmp_path, "name: x\npipeline: levels.yaml\ninput: []\nexpect: {emissions: {}}\n")
    assert problems(path) == [(2, "generation", "0 is too small")]


def test_case_form_is_checked_without_its_pipeline(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(STREAMS, indent=1), "case.json")
    ((_, written),) = read_cases(path)
    assert written.name == "tumbling-final"
    assert written.expect.emissions is not None
    assert written.expect.emissions["c"][0].window == (0, 10)


def test_inline_pipeline_mistake_has_the_case_line(tmp_path: Path) -> None:
    wrong = json.dumps(STREAMS, indent=1).replace("count(*)", "cnt(*)").replace("10ms", "10 ms")
    path = write(tmp_path, wrong, "case.json")
    assert [(field, message) for _, field, message in problems(path)] == [
        ("pipeline.stages.0.reduce.value", "`cnt` is not an aggregate that can be used"),
        ("pipeline.stages.0.window.tumbling", "'10 ms' is not a duration"),
    ]
    lines = path.read_text().splitlines()
    assert ["cnt(*)" in lines[problems(path)[0][0] - 1], "10 ms" in lines[problems(path)[1][0] - 1]] == [
        True
    ] * 2


LOOKED_UP = INLINE.replace(
    "  stages:", "  lookup: [{table: stores/current, on: [value], columns: [region]}]\n  stages:"
)


def test_case_gives_rows_of_lookup_tables(tmp_path: Path) -> None:
    text = LOOKED_UP.replace("input:", "tables:\n  stores/current: [{value: 1, region: north}]\ninput:")
    (case,) = load_cases(write(tmp_path, text))
    assert case.tables == {"stores/current": ({"value": 1, "region": "north"},)}


def test_a_case_without_tables_has_none(tmp_path: Path) -> None:
    assert load_cases(write(tmp_path, LOOKED_UP))[0].tables == {}


@pytest.mark.parametrize(
    ("tables", "field", "message"),
    [
        ("{stores: []}", "tables.stores", "no lookup has a table `stores`"),
        ("{stores/current: [{value: 1, regio: x}]}", "tables.stores/current.0.regio", "does not use `regio`"),
        ("{stores/current: [5]}", "tables.stores/current.0", "has to be a mapping, not 5"),
        ("{stores/current: {}}", "tables.stores/current", "has to be a list, not a mapping"),
        ("5", "tables", "has to be a mapping, not 5"),
    ],
)
def test_tables_are_those_of_the_lookups(tmp_path: Path, tables: str, field: str, message: str) -> None:
    ((_, actual_field, actual_message),) = problems(
        write(tmp_path, LOOKED_UP.replace("input:", f"tables: {tables}\ninput:"))
    )
    assert (actual_field, message in actual_message) == (field, True), actual_message


def test_every_case_of_kafka_streams_can_be_run() -> None:
    """They were produced by running Kafka Streams itself."""
    paths = sorted(STREAMS_CASES.glob("*.json"))
    assert len(paths) == 36
    assert [case.name for path in paths for case in load_cases(path)] == [path.stem for path in paths]


BAD: list[tuple[tuple[str, str], int, str, str]] = [
    (("name: one\n", ""), 1, "name", "`name` is missing"),
    (("name: one", "nam: one"), 1, "nam", "unknown field `nam`"),
    (("key: a, ", "kee: a, "), 7, "input.0.kee", "unknown field `kee`"),
    (
        ("value: {value: 1}, timestamp: 5}\nexpect", "timestamp: 5}\nexpect"),
        7,
        "input.0",
        "`value` is missing",
    ),
    (("key: a, ", "raw: x, "), 7, "input.0", "`value` and `raw` are both given"),
    (("timestamp: 5}\nexpect", "timestamp: x}\nexpect"), 7, "input.0.timestamp", "a whole number, not 'x'"),
    (("timestamp: 5}\nexpect", "time: 5}\nexpect"), 7, "input.0.time", "unknown field `time`"),
    (("key: a, ", "tick: 5, "), 7, "input.0.value", "`value` does not go with `tick: 5`"),
    (("key: a, ", "key: 5, "), 7, "input.0.key", "has to be text, not 5"),
    (("key: a, ", "partition: -1, "), 7, "input.0.partition", "too small"),
    (("key: a, ", "headers: {a: 1}, "), 7, "input.0.headers", "headers are names with texts"),
    (("key: a, ", "topic: out, "), 7, "input.0.topic", "`out` is not a source topic"),
    (("timestamp: 5}\nexpect", "timestamp: 99999999999999999}\nexpect"), 7, "input.0.timestamp", "too large"),
    (("timestamp: 5}]", "timestmp: 5}]"), 10, "expect.emissions.a.0.timestmp", "unknown field `timestmp`"),
    (
        ("[{value: {value: 1}, timestamp: 5}]", "[{timestamp: 5}]"),
        10,
        "expect.emissions.a.0.value",
        "is missing",
    ),
    (
        ("emissions:\n    a: [{value: {value: 1}, timestamp: 5}]", "error: null"),
        8,
        "expect",
        "nothing is expected",
    ),
    (("  emissions:", "  emission:"), 9, "expect.emission", "unknown field `emission`"),
]


@pytest.mark.parametrize(
    ("edit", "line", "field", "part"), BAD, ids=[edit[1][:30] or "no name" for edit, *_ in BAD]
)
def test_case_mistake_has_line_and_field(
    tmp_path: Path, edit: tuple[str, str], line: int, field: str, part: str
) -> None:
    assert INLINE.count(edit[0]) == 1
    mistakes = problems(write(tmp_path, INLINE.replace(*edit)))
    assert any((at, at_field) == (line, field) and part in message for at, at_field, message in mistakes), (
        mistakes
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("cases: []", "it has to be a list of cases"),
        ("cases: 5", "it has to be a list of cases"),
        ("cases: [5]", "it has to be a mapping"),
        ("cases: [{name: x}]\nname: y", "unknown field `name` beside `cases`"),
        ("[]", "it has to be a mapping"),
        ("name: x\npipeline: 5\ninput: []\nexpect: {emissions: {}}", "a pipeline or a path, not 5"),
    ],
)
def test_a_file_without_cases_is_refused(tmp_path: Path, text: str, part: str) -> None:
    assert any(part in message for *_, message in problems(write(tmp_path, text)))


def test_case_names_must_differ(tmp_path: Path) -> None:
    case = "{name: x, pipeline: p.yaml, input: [], expect: {emissions: {}}}"
    mistakes = problems(write(tmp_path, f"cases:\n  - {case}\n  - {case}\n"))
    assert mistakes == [(3, "cases.1.name", "'x' appears twice")]


def test_mistakes_of_all_cases_are_reported_together(tmp_path: Path) -> None:
    case = "{name: x, pipeline: p.yaml, input: [], expect: {}}"
    mistakes = problems(write(tmp_path, f"cases:\n  - {case}\n  - {case.replace('name: x', 'name: y')}\n"))
    assert [(line, field) for line, field, _ in mistakes] == [(2, "cases.0.expect"), (3, "cases.1.expect")]


def test_json_lines_are_input() -> None:
    text = '{"key": "a", "value": {"quantity": 1}, "timestamp": 1}\n\n{"tick": 5}\n'
    assert parse_input(text, "in.jsonl", parse_pipeline(GOOD, "p")) == (
        CaseRecord("a", b'{"quantity": 1}', 1, "stock"),
        Tick(5),
    )


@pytest.mark.parametrize(
    ("line", "field", "part"),
    [
        ("{", "input", "not JSON"),
        ("5", "input.1", "has to be a mapping"),
        ('{"value": 1}', "input.1.timestamp", "`timestamp` is missing"),
        ('{"value": 1, "timestamp": 1, "topic": "x"}', "input.1.topic", "not a source topic"),
        ('{"value": 1, "value": 1}', "input", "written twice"),
    ],
)
def test_bad_json_line_is_reported_with_its_number(line: str, field: str, part: str) -> None:
    with pytest.raises(PipelineInvalid) as caught:
        parse_input('{"tick": 5}\n\n' + line, "in.jsonl", parse_pipeline(GOOD, "p"))
    places: list[Any] = [(problem.line, problem.field) for problem in caught.value.problems]
    assert places == [(3, field)]
    assert part in str(caught.value)
