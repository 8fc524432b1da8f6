"""`connection:` at the source and at Kafka sinks: which cluster, by a name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.files import made, refused
from tidegate.model.compiled import compile_pipeline, read_compiled, source_connection
from tidegate.model.connection import Connection
from tidegate.model.pipeline import Pipeline
from tidegate.sinks.kafka.model import KafkaSink
from tidegate.storage.compatibility import incompatible_changes, notable_changes

SHOP: dict[str, Any] = {"connection": "shop"}


def kafka(topic: str = "out", **more: Any) -> dict[str, Any]:
    return {"kind": "kafka", "topic": topic, **more}


def test_without_one_there_is_one_cluster() -> None:
    pipeline = made(sinks=[kafka()])
    assert pipeline.connections == (Connection("kafka"),)
    assert Connection("kafka").variable == "TIDEGATE_KAFKA"
    assert Connection("kafka").airflow_id == "tidegate_kafka"


def test_source_and_sinks_may_have_one_each() -> None:
    sinks = [kafka(connection="reports_2"), kafka(), kafka("more", **SHOP), {"kind": "sql", "table": "t"}]
    pipeline = made(source=SHOP, sinks=sinks)
    assert [connection.airflow_id for connection in pipeline.connections] == [
        *("tidegate_kafka_shop", "tidegate_kafka_reports_2", "tidegate_kafka", "tidegate_sql")
    ]
    assert pipeline.sources["source"].cluster.variable == "TIDEGATE_KAFKA_SHOP"


def test_same_topic_in_two_clusters_makes_two_sinks() -> None:
    pipeline = made(sinks=[kafka(), kafka(**SHOP)])
    assert [sink.name for sink in pipeline.sinks] == ["kafka:out", "kafka:shop:out"]
    assert [rules.target for sink in pipeline.sinks if (rules := sink.messages)] == ["out", "shop:out"]
    ((field, message, _),) = refused(sinks=[kafka(**SHOP), kafka(**SHOP)])
    assert (field, message) == ("sinks.1", "there are two sinks `kafka:shop:out`")


@pytest.mark.parametrize(
    ("source", "sink", "reads_itself"),
    [({}, {}, True), (SHOP, SHOP, True), ({}, SHOP, False), (SHOP, {}, False)],
)
def test_topic_is_a_source_in_its_cluster_only(
    source: dict[str, Any], sink: dict[str, Any], reads_itself: bool
) -> None:
    mistakes = refused(source={**source, "topics": ["both"]}, sinks=[kafka("both", **sink)])
    assert [field for field, _, _ in mistakes] == (["sinks.0.topic"] if reads_itself else [])


@pytest.mark.parametrize("name", ["Shop", "shop:9092", "a-b", "", "port", 'x"; drop', 1])
@pytest.mark.parametrize("place", ["source", "sinks.0"])
def test_a_connection_is_a_name_and_no_address(name: Any, place: str) -> None:
    given = {"connection": name}
    mistakes = refused(source=given) if place == "source" else refused(sinks=[kafka(**given)])
    assert [field for field, _, _ in mistakes] == [f"{place}.connection"]
    if isinstance(name, str):
        assert "TIDEGATE_KAFKA_REPORTS" in mistakes[0][2]
        assert "tidegate_kafka_reports" in mistakes[0][2]
        assert not name or name not in mistakes[0][1]


def test_a_table_has_none() -> None:
    ((field, message, _),) = refused(sinks=[{"kind": "table", "connection": "shop"}])
    assert (field, "does not go with `kind: table`" in message) == ("sinks.0.connection", True)


def again(pipeline: Pipeline) -> Pipeline:
    return read_compiled(compile_pipeline(pipeline), pipeline.text, "batch 1")


def test_a_plan_has_the_names() -> None:
    pipeline = made(source=SHOP, sinks=[kafka(connection="reports")])
    loaded = again(pipeline)
    assert loaded == pipeline
    assert loaded.connections == (Connection("kafka", "shop"), Connection("kafka", "reports"))
    assert isinstance(loaded.sinks[0], KafkaSink)
    assert source_connection(compile_pipeline(pipeline), "batch 1") == "shop"
    assert source_connection(compile_pipeline(made(sinks=[kafka()])), "batch 1") is None


def test_changed_source_connection_is_accepted_and_reported() -> None:
    before, after = made(sinks=[kafka()]), made(source=SHOP, sinks=[kafka()])
    assert incompatible_changes(before, after) == []
    (sentence,) = notable_changes(before, after)
    assert "connection shop from now on" in sentence


def test_another_connection_of_a_sink_is_another_sink() -> None:
    before, after = made(sinks=[kafka()]), made(sinks=[kafka(**SHOP)])
    assert notable_changes(before, after) == [
        "The sink kafka:shop:out is new: it gets emissions from now on",
        "The sink kafka:out was removed: it gets nothing more",
    ]
