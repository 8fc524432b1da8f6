"""`source.metadata` and `source.headers` in a pipeline file."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.formats.metadata import METADATA
from tidegate.storage.compatibility import incompatible_changes

SELECTED = {"select": {"id": "id"}}
COLUMNS: dict[str, Any] = {"columns": "id bigint, at bigint"}


def columns(**source: Any) -> dict[str, str]:
    source = COLUMNS | source
    return {
        column.name: column.type for column in made(SELECTED, source=source).sources["source"].row_columns
    }


def mistakes(**source: Any) -> list[tuple[str, str, str]]:
    return refused(SELECTED, source=COLUMNS | source)


def test_metadata_become_columns_in_the_order_written() -> None:
    assert columns(metadata=["offset", "topic"]) == {
        "id": "bigint",
        "at": "bigint",
        "offset": "bigint",
        "topic": "string",
    }
    assert columns(metadata=[*METADATA])["headers"] == "array<struct<key:string,value:binary>>"


def test_mapping_gives_metadata_other_names() -> None:
    assert columns(metadata={"kafka_topic": "topic", "when": "timestamp"}) | COLUMNS == {
        **columns(),
        **COLUMNS,
        "kafka_topic": "string",
        "when": "timestamp",
    }


def test_header_can_have_its_own_name() -> None:
    headers = {"traceId": {"name": "x-trace-id", "type": "long"}, "tenant": "string"}
    assert columns(headers=headers)["traceId"] == "bigint"
    source = made(SELECTED, source={**COLUMNS, "headers": headers}).sources["source"]
    assert {column: header.name for column, header in source.headers.items()} == {
        "traceId": "x-trace-id",
        "tenant": "tenant",
    }


def test_each_option_can_name_the_columns() -> None:
    source = {
        **COLUMNS,
        "metadata": ["topic", "partition", "offset"],
        "headers": {"sent": "timestamp", "tenant": "string"},
        "filter": "topic <> 'test' and tenant is not null",
        "key": ["tenant", "partition"],
        "timestamp": "sent",
        "deduplicate": {"columns": ["tenant", "offset"], "keep": "1h"},
    }
    stage = {"select": {"t": "upper(topic)", "s": "sent"}, "filter": "offset > 5", "where": "tenant = 'a'"}
    made(stage, source=source)
    made(SELECTED, source={**COLUMNS, "metadata": ["offset"], "sequence": {"columns": ["offset"]}})


def test_metadata_timestamp_can_be_the_time_of_records() -> None:
    made(SELECTED, source={**COLUMNS, "metadata": ["timestamp"], "timestamp": "timestamp"})


@pytest.mark.parametrize(
    ("source", "field", "message", "fix"),
    [
        (
            {"metadata": ["ofset"]},
            "source.metadata",
            "'ofset' is no metadata of Kafka",
            "Did you mean `offset`?",
        ),
        (
            {"metadata": []},
            "source.metadata",
            "a list names no metadata",
            "Write `metadata: [topic, offset]`",
        ),
        ({"metadata": "topic"}, "source.metadata", "'topic' names no metadata", "Write `metadata: [topic,"),
        ({"metadata": ["topic", "topic"]}, "source.metadata", "`topic` is named twice", "Name it once."),
        (
            {"metadata": {"t": "topics"}},
            "source.metadata.t",
            "'topics' is not known",
            "Did you mean `topic`?",
        ),
        (
            {"metadata": {"t": "topic", "T": "offset"}},
            "source.metadata",
            "`T` appears twice",
            "Names have to differ in more than case.",
        ),
        (
            {"columns": "id bigint, Topic int", "metadata": ["topic"]},
            "source.metadata",
            "`topic` is a column already",
            "Give it another name: `metadata: {kafka_topic: topic}`.",
        ),
        (
            {"headers": {"id": "string"}},
            "source.headers",
            "`id` is a column already",
            "Give it another name: `headers: {id_header: {name: id, type: string}}`.",
        ),
        (
            {"metadata": ["topic"], "headers": {"topic": "string"}},
            "source.headers",
            "`topic` is a column already",
            "Give it another name:",
        ),
        ({"headers": {"h": "text"}}, "source.headers.h.type", "the type, `text`, is unknown", "`string`?"),
        (
            {"headers": {"h": "array<int>"}},
            "source.headers.h.type",
            "a header is a single value, and not array<int>",
            "Use `string`, or `binary`.",
        ),
        (
            {"headers": {"h": {"type": "int"}}},
            "source.headers.h.name",
            "`name` is missing",
            "name: x-trace-id",
        ),
        (
            {"headers": ["h"]},
            "source.headers",
            "a list names no headers",
            "Write `headers: {traceId: string}`",
        ),
        (
            {"metadata": ["key"], "key": ["key"]},
            "source.key",
            "`key` is reserved: in the outbox it is the key of the emission",
            "Use another column",
        ),
    ],
)
def test_mistakes_have_a_fix(source: dict[str, Any], field: str, message: str, fix: str) -> None:
    ((place, what, how),) = mistakes(**source)
    assert place.startswith(field)
    assert what.startswith(message)
    assert fix in how


def test_reserved_metadata_is_emitted_under_another_name() -> None:
    ((field, message, fix),) = refused({}, source={**COLUMNS, "metadata": ["timestamp"]})
    assert (field, message) == (
        "stages.0.select",
        "without `select`, `timestamp` is emitted, but that is the time of the emission",
    )
    assert fix == "Write `select:` and give it another name: `event_timestamp: timestamp`."


def test_meaning_of_a_key_column_cannot_change() -> None:
    def keyed(**source: Any) -> Any:
        return made(SELECTED, source={**COLUMNS, "key": ["part"], **source})

    before = keyed(metadata={"part": "partition"})
    assert [change.field for change in incompatible_changes(before, keyed(metadata={"part": "offset"}))] == [
        "source.columns.part"
    ]
    assert incompatible_changes(before, keyed(metadata={"part": "partition", "topic": "topic"})) == []
    header = keyed(headers={"part": {"name": "a", "type": "int"}})
    assert [change.field for change in incompatible_changes(before, header)] == ["source.columns.part"]
