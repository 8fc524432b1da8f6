"""The mistakes of a file: what is wrong, where, and the message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.model.files import GOOD, edited, problems
from tidegate.errors import PipelineInvalid
from tidegate.yaml.load import load_pipeline, parse_pipeline

Edit = tuple[str, str]

_SMALL = {
    "pipeline": "p",
    "source": {"topics": ["t"], "format": "json", "columns": "id string, quantity int"},
    "stages": [{"name": "s", "emit": {"on": "change"}}],
    "sinks": [{"kind": "kafka", "topic": "out"}],
}

# an edit of the good file; the line, the field and a part of the message that it leads to
BAD: list[tuple[Edit, int, str, str]] = [
    # names and numbers
    (("pipeline: levels", "pipeline: Levels"), 1, "pipeline", "'Levels' is not a name"),
    (("pipeline: levels", "pipeline: 5"), 1, "pipeline", "has to be text, not 5"),
    (("pipeline: levels", "x: levels"), 1, "pipeline", "`pipeline` is missing"),
    (("generation: 2", "generation: 0"), 2, "generation", "0 is too small"),
    (("generation: 2", 'generation: "2"'), 2, "generation", "a whole number, not '2'"),
    (("generation: 2", "generation: true"), 2, "generation", "a whole number, not true"),
    (("generation: 2", "generation: 3_000_000_000"), 2, "generation", "too large"),
    (('"*/5 * * * *"', '"61 * * * *"'), 3, "schedule", "'61' cannot be the minute"),
    (('"*/5 * * * *"', '"* * * * * *"'), 3, "schedule", "5 fields, this has 6"),
    (('"*/5 * * * *"', '"0 0 31 2 *"'), 3, "schedule", "does not exist in that month"),
    # source
    (("topics: [stock]", "topics: [st ock]"), 5, "source.topics.0", "not a legal Kafka topic"),
    (("topics: [stock]", "topics: [..]"), 5, "source.topics.0", "not a legal Kafka topic"),
    (("topics: [stock]", "topics: [stock, stock]"), 5, "source.topics", "`stock` is named twice"),
    (("topics: [stock]", "topics: []"), 5, "source.topics", "is empty"),
    (("topics: [stock]", "topics: stock"), 5, "source.topics", "has to be a list, not 'stock'"),
    (("topics: [stock]", "topic: [stock]"), 5, "source.topic", "unknown field `topic` in `source`"),
    (("format: json", "format: jsn"), 6, "source.format", "'jsn' is not known"),
    (("format: json", "format: string"), 7, "source.columns", "has the one column `value`"),
    (("storeId string, ", "storeId strng, "), 7, "source.columns", "`strng`, is unknown"),
    (("storeId string, ", "storeId, "), 7, "source.columns", "the type of `storeId` is missing"),
    (("seenAt bigint", "ID bigint"), 7, "source.columns", "the column `ID` appears twice"),
    (("seenAt bigint", "__seen bigint"), 7, "source.columns", "'__seen' begins like tidegate's own"),
    (("key: [storeId, id]", "key: [storeid]"), 8, "source.key.0", "`storeid` does not exist"),
    (("key: [storeId, id]", "key: [storeId, tags]"), 8, "source.key.1", "`tags` is array<string>"),
    (("key: [storeId, id]", "key: [weight]"), 8, "source.key.0", "`weight` is double"),
    (("key: [storeId, id]", "key: [id, id]"), 8, "source.key", "`id` is named twice"),
    (("key: [storeId, id]", "key: storeId"), 8, "source.key", "has to be a list"),
    (("timestamp: record", "timestamp: seen"), 9, "source.timestamp", "`seen` does not exist"),
    (("timestamp: record", "timestamp: storeId"), 9, "source.timestamp", "`storeId` is string"),
    (("deduplicate: offset", "deduplicate: ofset"), 11, "source.deduplicate", "'ofset' is not known"),
    (("max_records: 5_000_000", "max_records: 0"), 12, "source.max_records", "too small"),
    (("max_records: 5_000_000", "max_records: 1.5"), 12, "source.max_records", "not 1.5"),
    (("start: earliest", "start: soon"), 13, "source.start", "'soon' is not a place to start"),
    (("start: earliest", "start: 2026-01-31T00:00:00"), 13, "source.start", "has no time zone"),
    (("start: earliest", "start: 1969-01-01T00:00:00Z"), 13, "source.start", "before 1970"),
    (("start: earliest", "start: 2026-02-31T00:00:00Z"), 13, "source.start", "not a place to start"),
    (("start: earliest", "start: -1"), 13, "source.start", "not a place to start"),
    (("start: earliest", "start: true"), 13, "source.start", "true is not a place to start"),
    (("explode: null", "explode: tag"), 10, "source.explode", "`tag` does not exist"),
    (("explode: null", "explode: id"), 10, "source.explode", "`id` is bigint"),
    (("deduplicate: offset", "deduplicate: {columns: [x]}"), 11, "source.deduplicate.keep", "is missing"),
    (("lookup: []", "lookup: [{table: x, on: [id], columns: [y]}]"), 14, "lookup.0.table", "not a table"),
    # stages
    (("- name: levels", "- name: out-1"), 16, "stages.0.name", "'out-1' is not a name"),
    (("isAvailable: ", "timestamp: "), 18, "stages.0.select.timestamp", "reserved: in the outbox it is the"),
    (("isAvailable: ", "KEY: "), 18, "stages.0.select.KEY", "'KEY' is reserved"),
    (("isAvailable: ", "window_start: "), 18, "stages.0.select.window_start", "is reserved"),
    (("isAvailable: ", "is available: "), 18, "stages.0.select.is available", "not a legal column name"),
    (("isAvailable: ", "SEEN: "), 17, "stages.0.select", "`seen` appears twice"),
    (("isAvailable: ", "id: "), 17, "stages.0.select", "`id` is a key column, but is selected as"),
    (('"quantity > 0"', '"quantty > 0"'), 18, "stages.0.select.isAvailable", "`quantty` does not exist"),
    (('"quantity > 0"', '"rand() > 0"'), 18, "stages.0.select.isAvailable", "`rand` gives another value"),
    (('"quantity > 0"', "1"), 18, "stages.0.select.isAvailable", "has to be text, not 1"),
    (("reduce: latest", "reduce: last"), 20, "stages.0.reduce", "'last' is not known"),
    (("on: change", "on: chnge"), 22, "stages.0.emit.on", "'chnge' is not known"),
    (("on: change", "of: change"), 21, "stages.0.emit.on", "`on` is missing"),
    (("on: change", "on: update"), 23, "stages.0.emit.equal", "`equal` does not go with `on: update`"),
    (("equal: exact", "equal: exakt"), 23, "stages.0.emit.equal", "'exakt' is not known"),
    (("equal: exact", "columns: [sen]"), 23, "stages.0.emit.columns.0", "the stage emits no column `sen`"),
    (("equal: exact", "ignore: [isAvailable, seen]"), 21, "stages.0.emit", "leaves nothing to compare"),
    (("equal: exact", "columns: []"), 23, "stages.0.emit.columns", "is empty"),
    (("equal: exact", "{}: 1"), 23, "stages.0.emit", "a field's name must be text"),
    (("equal: exact", "equal: {within: {seen: x}}"), 23, "stages.0.emit.equal.within.seen", "not a toler"),
    (("equal: exact", "equal: {sql: 'old.x'}"), 23, "stages.0.emit.equal.sql", "`old` has no field `x`"),
    (("equal: exact", "heartbeat: 5"), 23, "stages.0.emit.heartbeat", "5 is not a duration"),
    (("reduce: latest", "window: {tumbling: 1 h}"), 20, "stages.0.window.tumbling", "is not a duration"),
    (("reduce: latest", "reduce: {n: cnt(*)}"), 20, "stages.0.reduce.n", "`cnt` is not an aggregate"),
    (("reduce: latest", 'reduce: {n: "count(*)"}'), 17, "stages.0.select", "does not go with aggregates"),
    (("reduce: latest", "key: [id]"), 20, "stages.0.key", "the first stage has the source's key"),
    (
        ('where: "isAvailable"', 'where: "shuffle(seen)"'),
        24,
        "stages.0.where",
        "`shuffle` gives another value",
    ),
    (
        ('where: "isAvailable"', 'where: "window_end > 0"'),
        24,
        "stages.0.where",
        "if the stage has a window",
    ),
    (('where: "isAvailable"', 'where: "quantity > 0"'), 24, "stages.0.where", "`quantity` does not exist"),
    # sinks
    (("kind: kafka", "kind: kafke"), 26, "sinks.0.kind", "'kafke' is not known"),
    (("kind: kafka", "kin: kafka"), 26, "sinks.0.kind", "`kind` is missing"),
    (("topic: availability", "topic: stock"), 27, "sinks.0.topic", "`stock` is also a source"),
    (("topic: availability", "path: x"), 27, "sinks.0.path", "does not go with `kind: kafka`"),
    (("with_key: true", "with_key: yes"), 28, "sinks.0.with_key", "true or false, not 'yes'"),
    (("path: out/levels", "path: ../levels"), 30, "sinks.1.path", "not a path that can be used"),
    (("path: out/levels", f"path: {'x' * 301}"), 30, "sinks.1.path", "has 301 characters"),
    (("path: out/levels", "path: s3://user:secret@host"), 30, "sinks.1.path", "not a path that can be"),
    (("stage: levels", "stage: level"), 31, "sinks.1.stage", "there is no stage `level`"),
    (("kind: table\n    path: out/levels", "kind: sql\n    table: a b"), 30, "sinks.1.table", "table's name"),
    # quality
    (("suite: availability", "suite: ../../x"), 33, "quality.suite", "is not a suite's name"),
    (("on_failure: stop", "on_failure: halt"), 34, "quality.on_failure", "'halt' is not known"),
    (("on_failure: stop", "on_fail: stop"), 34, "quality.on_fail", "unknown field `on_fail`"),
]


@pytest.mark.parametrize(("edit", "line", "field", "part"), BAD, ids=[edit[1] for edit, *_ in BAD])
def test_mistake_has_line_and_field(edit: Edit, line: int, field: str, part: str) -> None:
    mistakes = problems(edited(edit))
    assert any(
        (at, at_field) == (line, field) and part in message for at, at_field, message, _ in mistakes
    ), mistakes


@pytest.mark.parametrize(("edit"), [edit for edit, *_ in BAD], ids=[edit[1] for edit, *_ in BAD])
def test_every_mistake_comes_with_a_fix(edit: Edit) -> None:
    assert all(fix.endswith((".", "?")) for *_, fix in problems(edited(edit)))


@pytest.mark.parametrize(
    ("edit", "field", "fix"),
    [
        (("where:", "every: 5m\n    where:"), "stages.0.every", "It belongs to `window` or `emit`."),
        (("topics: [stock]", "topics: [stock]\n  schedule: none"), "source.schedule", "the top of the file"),
        (("equal: exact", "ttl: 7d"), "stages.0.emit.ttl", "It belongs to `stages`"),
    ],
    ids=["child", "top", "parent"],
)
def test_misplaced_field_names_its_place(edit: Edit, field: str, fix: str) -> None:
    fixes = {at_field: advice for _, at_field, _, advice in problems(edited(edit))}
    assert fix in fixes[field]


# texts that are no tree of values at all
UNREADABLE = [
    ("", 1, "empty"),
    ("# only a comment", 1, "empty"),
    ("pipeline: x\n\tsource: y", 2, "cannot start any token"),
    ("pipeline: [", 1, "expected the node content"),
    ("a: 1\n---\nb: 2", 2, "another document"),
    ("a: &a [x]\nb: *a", 2, "alias"),
    ("pipeline: x\npipeline: y", 2, "written twice"),
    ("a: {b: 1,\n b: 2}", 2, "written twice"),
    ("1: x", 1, "a field's name must be text"),
    ("? [a]\n: x", 1, "a field's name must be text"),
    ("a: !!python/object/apply:os.system [ls]", 1, "the tag"),
    ("a: !!binary aGVsbG8=", 1, "the tag"),
    ("a: !!int x", 1, "not a usable int"),
    ("a: 1" + "0" * 5000, 1, "not a usable int"),
    ('a: "\\ud800"', 1, "not a usable str"),
    ("a: \x00", 1, "does not allow"),
    ("a\nb\nc: \x07", 3, "does not allow"),
    ("[" * 5000, 1, "nested too deeply"),
]


@pytest.mark.parametrize(("text", "line", "part"), UNREADABLE, ids=[text[:30] for text, *_ in UNREADABLE])
def test_an_unreadable_text_is_one_readable_problem(text: str, line: int, part: str) -> None:
    ((at, _, message, fix),) = problems(text)
    assert at == line
    assert part in message
    assert fix.endswith(".")


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ('{"pipeline": "x",\n "pipeline": "y"}', 2, "written twice"),
        ('{"pipeline": "x",\n\t"pipeline": "y"}', 2, "written twice"),
        ('{"pipeline":\n x}', 2, "not JSON"),
        ('{"generation": NaN}', 1, "NaN is not a number"),
        ("[" * 100_000, 1, "nested too deeply"),
    ],
)
def test_unreadable_json_is_one_readable_problem(text: str, line: int, part: str) -> None:
    ((at, _, message, _),) = problems(text, "p.json")
    assert at == line
    assert part in message


@pytest.mark.parametrize("text", ["[]", "x", "5", "- pipeline: x"])
def test_what_is_not_a_mapping_is_refused(text: str) -> None:
    assert "has to be a mapping" in problems(text)[0][2]


def test_the_mistakes_of_json_have_lines_too() -> None:
    text = '{\n\t"pipeline": "p",\n\t"source": {\n\t\t"topics": []\n\t}\n}'
    assert (4, "source.topics") in [(line, field) for line, field, *_ in problems(text, "p.json")]


def test_all_mistakes_are_reported_in_file_order() -> None:
    text = edited(
        ("pipeline: levels", "pipeline: Levels"),
        ("topics: [stock]", "topics: [st ock]"),
        ("storeId string, ", "storeId strng, "),
        ("start: earliest", "start: soon"),
        ('"quantity > 0"', '"rand()"'),
        ('where: "isAvailable"', 'where: "isAvailble"'),
        ("topic: availability", "topik: availability"),
        ("suite: availability", "suite: a/b"),
    )
    assert [field for _, field, *_ in problems(text)] == [
        "pipeline",
        "source.topics.0",
        "source.columns",
        "source.start",
        "stages.0.select.isAvailable",
        "stages.0.where",
        "sinks.0.topik",
        "quality.suite",
    ]


def test_several_faults_of_one_expression_are_several_problems() -> None:
    mistakes = problems(edited(('"quantity > 0"', '"quantty > rand()"')))
    assert [field for _, field, *_ in mistakes] == ["stages.0.select.isAvailable"] * 2


@pytest.mark.parametrize(
    ("edit", "fix"),
    [
        (("generation: 2", "generatoin: 2"), "Did you mean `generation`?"),
        (("max_records: 5_000_000", "max_record: 5"), "Did you mean `max_records`?"),
        (("format: json", "format: jsn"), "Did you mean `json`?"),
        (("on: change", "on: chnge"), "Did you mean `change`?"),
        (("kind: kafka", "kind: kafke"), "Did you mean `kafka`?"),
        (("key: [storeId, id]", "key: [storeid, id]"), "Did you mean `storeId`?"),
        (("storeId string, ", "storeId text, "), "Did you mean `string`?"),
        (("with_key: true", "withkey: true"), "Did you mean `with_key`?"),
        (("pipeline: levels", "pipeline: [levels]"), "Write for example `pipeline: availability`."),
    ],
)
def test_the_fix_names_what_was_meant(edit: Edit, fix: str) -> None:
    assert fix in [problem[3] for problem in problems(edited(edit))]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("{on: interval, speed: 1}", "`on`, `clock`, `every`"),
        ("{any: [{on: time_limit, after: 1h, speed: 1}]}", "`on`, `clock`, `after`"),
    ],
)
def test_listed_fields_go_with_the_form(form: str, expected: str) -> None:
    fixes = [fix for *_, fix in problems(edited(("\n      on: change\n      equal: exact", f" {form}")))]
    assert any(fix.startswith(f"Known are {expected}") for fix in fixes)


def test_listed_fields_of_a_sink_are_its_own() -> None:
    kafka, sql = "kind: kafka\n    topic: availability", "kind: sql\n    table: x\n    url: y"
    [fix] = [fix for _, field, _, fix in problems(edited((kafka, sql))) if field == "sinks.0.url"]
    assert "`refused_row`" in fix
    assert "`topic`" not in fix


def test_columns_and_ignore_exclude_each_other() -> None:
    mistakes = problems(edited(("equal: exact", "columns: [seen]\n      ignore: [isAvailable]")))
    assert [(line, field) for line, field, *_ in mistakes] == [(24, "stages.0.emit.ignore")]


def test_two_sinks_with_one_name_are_refused() -> None:
    mistakes = problems(
        edited(("  - kind: table\n    path: out/levels", "  - kind: kafka\n    topic: availability"))
    )
    assert [message for *_, message, _ in mistakes] == ["there are two sinks `kafka:availability`"]


def test_with_key_needs_key_columns() -> None:
    mistakes = problems(edited(("key: [storeId, id]", "key: null")))
    assert [(line, field) for line, field, *_ in mistakes] == [(28, "sinks.0.with_key")]


def test_a_pipeline_without_sinks_is_refused() -> None:
    text = GOOD[: GOOD.index("sinks:")]
    assert [(field, message) for _, field, message, _ in problems(text)] == [
        ("sinks", "a pipeline needs at least one sink")
    ]


def test_a_pipeline_without_stages_is_refused() -> None:
    text = GOOD[: GOOD.index("stages:")] + "stages: []\n" + GOOD[GOOD.index("sinks:") :]
    assert ("stages", "it is empty") in [(field, message) for _, field, message, _ in problems(text)]


@pytest.mark.parametrize("format_", ["json", "csv", "debezium"])
def test_json_csv_and_debezium_need_columns(format_: str) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith("  columns:")]
    text = "\n".join(lines).replace("format: json", f"format: {format_}")
    assert f"`format: {format_}` needs its columns" in [message for *_, message, _ in problems(text)]


def test_a_deletion_of_debezium_has_nothing_to_explode() -> None:
    text = edited(("format: json", "format: debezium"), ("explode: null", "explode: tags"))
    assert [(line, field, message) for line, field, message, _ in problems(text)] == [
        (10, "source.explode", "`explode` does not go with `format: debezium`: a deletion has no elements")
    ]


def test_without_select_a_reserved_column_needs_another_name() -> None:
    text = (
        'pipeline: p\nsource: {topics: [t], format: json, columns: "timestamp bigint"}\n'
        "stages:\n  - name: s\n    emit: {on: update}\nsinks: [{kind: table}]\n"
    )
    ((line, field, message, fix),) = problems(text)
    assert (line, field) == (4, "stages.0.select")
    assert "`timestamp` is emitted" in message
    assert "event_timestamp" in fix


@pytest.mark.parametrize("name", ["key", "timestamp"])
def test_key_column_named_like_outbox_column_is_refused(name: str) -> None:
    text = edited(
        ("seenAt bigint", f"seenAt bigint, {name} bigint"), ("key: [storeId, id]", f"key: [{name}]")
    )
    assert f"`{name}` is reserved" in problems(text)[0][2]


def test_missing_file_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(PipelineInvalid, match="cannot be read: No such file"):
        load_pipeline(tmp_path / "none.yaml")


def test_file_that_is_not_utf8_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"pipeline: \xff")
    with pytest.raises(PipelineInvalid, match="byte 10 is not UTF-8"):
        load_pipeline(tmp_path / "p.yaml")


def test_problem_text_has_file_line_field_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(edited(("generation: 2", "generation: 0")))
    with pytest.raises(PipelineInvalid) as caught:
        load_pipeline(path)
    assert str(caught.value) == (f"{path}:2: generation: 0 is too small. Write for example `generation: 1`.")


def test_misspelt_field_is_reported_once() -> None:
    stage = {
        "name": "s",
        "selct": {"a": "quantity + 1"},
        "where": "a > 1",
        "emit": {"on": "change", "columns": ["a"]},
    }
    pipeline = {**_SMALL, "stages": [stage, {"name": "u", "key": ["a"], "emit": {"on": "change"}}]}
    with pytest.raises(PipelineInvalid) as caught:
        parse_pipeline(json.dumps(pipeline), "p.json")
    assert [problem.field for problem in caught.value.problems] == ["stages.0.selct"]
    written = json.dumps(_SMALL).replace('"source"', '"sorce"')
    with pytest.raises(PipelineInvalid) as caught:
        parse_pipeline(written, "p.json")
    assert [problem.field for problem in caught.value.problems] == ["sorce"]


def test_unknown_name_is_reported_once_with_all_places() -> None:
    stage = {
        "name": "s",
        "select": {"aa": "quantity + 1"},
        "where": "a > 1",
        "emit": {"on": "change", "columns": ["a"]},
    }
    later = {"name": "u", "key": ["a"], "select": {"c": "a", "d": "b"}, "emit": {"on": "change"}}
    with pytest.raises(PipelineInvalid) as caught:
        parse_pipeline(json.dumps({**_SMALL, "stages": [stage, later]}), "p.json")
    first, other = caught.value.problems
    assert (first.field, other.field) == ("stages.0.emit.columns.0", "stages.1.select.d")
    for place in ("stages.0.where", "stages.1.key.0", "stages.1.select.c"):
        assert f"{place}, line 1" in first.message
    assert "`b`" in other.message


def test_missing_schema_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "stock.avsc").write_text("{}")
    path = tmp_path / "p.json"
    source = {"topics": ["t"], "format": "avro", "schema": "stok.avsc"}
    path.write_text(json.dumps({**_SMALL, "source": source}))
    with pytest.raises(PipelineInvalid, match=r"there is no file 'stok.avsc'. Did you mean `stock.avsc`\?"):
        load_pipeline(path)
