"""`quarantine`: bounds of a share and of a number."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.model.files import GOOD, good
from tidegate.errors import PipelineInvalid
from tidegate.model.connection import Connection
from tidegate.model.quarantine_rules import RecordBound
from tidegate.yaml.load import parse_pipeline

LAST = "  on_failure: stop\n"


def test_pipeline_bounds_quarantine_by_alert_and_stop() -> None:
    rule = good(
        (LAST, f"{LAST}quarantine: {{alert: {{share: 0.5%, count: 10}}, stop: {{share: 100%}}}}\n")
    ).quarantine
    assert rule is not None
    assert rule.alert is not None
    assert (rule.alert.passed_by(11, 10_000), rule.alert.passed_by(10, 2_000)) == (True, False)
    assert rule.alert.passed_by(10, 1_999)
    assert rule.stop is not None
    assert not rule.stop.passed_by(5, 5)
    assert good().quarantine is None


@pytest.mark.parametrize(
    ("bound", "says"),
    [
        ("{share: 1}", "is not a share"),
        ("{share: 101%}", "is not a share"),
        ("{share: x%}", "is not a share"),
        ("{count: -1}", "count"),
        ("{}", "neither a share nor a number"),
    ],
)
def test_what_is_no_bound_is_refused(bound: str, says: str) -> None:
    with pytest.raises(PipelineInvalid, match=says):
        parse_pipeline(f"{GOOD}quarantine: {{stop: {bound}}}\n", "p.yaml")


@pytest.mark.parametrize(
    ("fields", "name", "connection"),
    [
        ("topic: dead", "dead-letters:dead", Connection("kafka", None)),
        ("topic: dead, connection: shop", "dead-letters:shop:dead", Connection("kafka", "shop")),
    ],
)
def test_dead_letter_topic_is_published_after_sinks(fields: str, name: str, connection: Connection) -> None:
    pipeline = parse_pipeline(f"{GOOD}quarantine: {{{fields}}}\n", "p.yaml")
    assert [sink.name for sink in pipeline.outputs] == [*(sink.name for sink in pipeline.sinks), name]
    assert connection in pipeline.connections
    assert good().outputs == good().sinks


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("topic: stock", "`stock` is also a source"),
        ("topic: availability", "`availability` is also a sink"),
        ("topic: a b", "not a legal Kafka topic name"),
        ("connection: shop", "`connection` says where a topic is"),
    ],
)
def test_a_topic_of_dead_letters_is_its_own(fields: str, says: str) -> None:
    with pytest.raises(PipelineInvalid, match=says):
        parse_pipeline(f"{GOOD}quarantine: {{{fields}}}\n", "p.yaml")


def test_same_name_in_another_cluster_is_another_topic() -> None:
    fields = "topic: availability, connection: elsewhere"
    assert parse_pipeline(f"{GOOD}quarantine: {{{fields}}}\n", "p.yaml").dead_letters is not None


@examples(100)
@given(
    st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 20), st.none() | st.integers(0, 100)
)
def test_either_quarantine_bound_can_be_exceeded(
    quarantined: int, came_in: int, count: int | None, percent: int | None
) -> None:
    bound = RecordBound(count=count, share=None if percent is None else f"{percent}%")
    expected = (count is not None and quarantined > count) or (
        percent is not None and quarantined > Fraction(percent, 100) * came_in
    )
    assert bound.passed_by(quarantined, came_in) == expected
