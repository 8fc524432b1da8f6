"""Messages in `csv` and `kafka`, which have neither names nor a schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidegate.errors import PipelineInvalid
from tidegate.formats.schemas import Payload
from tidegate.spark.outbox import KeyColumns, MessageValues
from tidegate.storage.schema import VALUE
from tidegate.yaml.load import parse_case_pipeline

VALUES = pa.array([{"name": "a,b", "n": 7}, None], pa.struct([("name", pa.string()), ("n", pa.int32())]))
KEYS = pa.array([{"id": 1}, {"id": 2}], pa.struct([("id", pa.int64())]))


def encoded(payload: Payload) -> list[Any]:
    emissions = pa.RecordBatch.from_pydict({VALUE: VALUES})
    messages = MessageValues(payload, KeyColumns(pa.schema([("id", pa.int64())])), False, "p/1", "s", 1)
    column = messages.encoded(emissions, KEYS, pa.nulls(2, pa.string()))
    assert column.type == messages.type
    values: list[Any] = column.to_pylist()
    return values


def test_csv_messages_are_rows_and_tombstones() -> None:
    assert encoded(Payload("csv")) == ['"a,b",7', None]


def test_csv_messages_can_have_the_key() -> None:
    assert encoded(Payload("csv", with_key=True)) == ['1,"a,b",7', None]


def test_kafka_keys_have_the_serializers_bytes() -> None:
    assert encoded(Payload("kafka", is_key=True)) == [bytes([0] * 7 + [1]), bytes([0] * 7 + [2])]


@pytest.mark.parametrize(
    ("columns", "key", "sink", "message"),
    [
        ("id bigint, xs array<int>", ["id"], {"format": "csv"}, "a field of CSV is a single value"),
        ("id bigint, n int", ["id"], {"format": "kafka"}, "`kafka` has one column, not 2"),
        ("id bigint, day date", ["id", "day"], {"key_format": "kafka"}, "`kafka` has one column, not 2"),
        ("day date, n int", ["day"], {"key_format": "kafka"}, "Kafka's clients have no serializer for it"),
    ],
)
def test_columns_without_a_form_are_refused(
    columns: str, key: list[str], sink: dict[str, str], message: str
) -> None:
    source = {"topics": ["in"], "format": "json", "columns": columns, "key": key}
    pipeline = {
        "pipeline": "p",
        "source": source,
        "stages": [{"name": "s", "emit": {"on": "update"}}],
        "sinks": [{"kind": "kafka", "topic": "out", **sink}],
    }
    with pytest.raises(PipelineInvalid) as error:
        parse_case_pipeline(pipeline, "p.yaml")
    assert message in str(error.value)


def test_key_columns_of_kafka_are_one_column() -> None:
    source = {"topics": ["in"], "format": "json", "columns": "n int", "key_format": "kafka"}
    source |= {"key_columns": "a bigint, b bigint", "key": ["a"]}
    pipeline = {"pipeline": "p", "source": source, "stages": [{"name": "s", "emit": {"on": "update"}}]}
    with pytest.raises(PipelineInvalid, match="`kafka` has one column, not 2"):
        parse_case_pipeline(pipeline, "p.yaml")
