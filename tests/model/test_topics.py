"""Patterns of topics: which names they select, and what a file may not write."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.model.files import SOURCE
from tidegate.errors import PipelineInvalid
from tidegate.model.compiled import compile_pipeline, read_compiled
from tidegate.model.pipeline import Pipeline
from tidegate.model.sources import Sources
from tidegate.yaml.cases import load_cases
from tidegate.yaml.load import parse_case_pipeline, parse_pipeline

STAGE = {"name": "out", "emit": {"on": "update"}}


def made(topics: Any) -> Pipeline:
    written = {"pipeline": "p", "source": {**SOURCE, "topics": topics}, "stages": [STAGE]}
    return parse_case_pipeline(written, "case")


@pytest.mark.parametrize(
    ("pattern", "topic", "is_selected"),
    [
        ("orders-.*", "orders-eu", True),
        ("orders-.*", "orders-", True),
        ("orders-.*", "orders", False),
        ("orders-.*", "old-orders-eu", False),
        ("orders", "orders-eu", False),
        ("orders-(eu|us)", "orders-us", True),
        ("(?i)orders-[a-c]{2}", "ORDERS-ab", True),
        ("(?!orders-test$)orders-.*", "orders-test", False),
        (r"orders\.v\d+", "orders.v12", True),
        (r"orders\.v\d+", "ordersxv12", False),
        ("[a-z&]+", "orders", True),
    ],
)
def test_pattern_selects_topics_by_their_whole_names(pattern: str, topic: str, is_selected: bool) -> None:
    assert made({"pattern": pattern}).sources["source"].reads(topic) is is_selected


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("*", "no regular expression: nothing to repeat"),
        ("", "an empty pattern matches no topic"),
        ("orders-(", "no regular expression"),
        (r"\p{L}+", "no regular expression"),
        ("(?P<region>eu|us)", "does not mean the same"),
        ("orders-(?>eu|us)", "does not mean the same"),
        ("orders-.*+", "does not mean the same"),
        ("orders-[a-z&&[^x]]", "does not mean the same"),
        ("(a)?(?(1)b|c)", "does not mean the same"),
        (7, "it has to be text"),
    ],
)
def test_pattern_of_one_reader_only_is_refused(pattern: Any, says: str) -> None:
    with pytest.raises(PipelineInvalid, match=says) as raised:
        made({"pattern": pattern})
    assert "source.topics.pattern" in str(raised.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("orders", "it has to be a list"),
        ([], "it is empty"),
        ({}, "`pattern` is missing"),
        ({"patern": "orders"}, "Did you mean `pattern`"),
        (["orders", "orders"], "`orders` is named twice"),
    ],
)
def test_other_forms_of_topics_are_refused(written: Any, says: str) -> None:
    with pytest.raises(PipelineInvalid, match=says):
        made(written)


def test_sink_that_the_pattern_matches_is_refused() -> None:
    text = (
        "pipeline: p\nsource: {topics: {pattern: 'orders-.*'}, format: string}\n"
        "stages: [{name: s, emit: {on: update}}]\nsinks: [{kind: kafka, topic: orders-out}]\n"
    )
    with pytest.raises(PipelineInvalid, match=r"p.yaml:4.*`orders-out` is also a source"):
        parse_pipeline(text, "p.yaml")
    assert parse_pipeline(text.replace("topic: orders-out", "topic: out"), "p.yaml").sinks


def test_plan_stores_the_selected_topics() -> None:
    pipeline = made({"pattern": "orders-.*"})
    source = pipeline.sources["source"].with_topics(("orders-eu", "orders-us"))
    planned = pipeline.with_sources(Sources({"source": source}))
    stored = read_compiled(compile_pipeline(planned), "", "test")
    assert stored.sources["source"].topics == ("orders-eu", "orders-us")
    assert made(["a", "b"]).sources["source"].with_topics(("c",)).topics == ("a", "b")


def test_record_of_a_case_needs_its_topic(tmp_path: Any) -> None:
    text = (
        "cases:\n  - name: c\n    pipeline:\n      pipeline: p\n"
        "      source: {topics: {pattern: 'orders-.*'}, format: string}\n"
        "      stages: [{name: s, emit: {on: update}}]\n"
        "    input: [{key: a, value: x, timestamp: 1TOPIC}]\n    expect: {emissions: {}}\n"
    )
    path = tmp_path / "cases.yaml"
    for topic, says in ((", topic: other", "does not match the pattern"), ("", "the record needs its topic")):
        path.write_text(text.replace("TOPIC", topic))
        with pytest.raises(PipelineInvalid, match=re.escape(says)):
            load_cases(path)
    path.write_text(text.replace("TOPIC", ", topic: orders-eu"))
    (case,) = load_cases(path)
    assert [record.topic for record in case.input] == ["orders-eu"]  # type: ignore[union-attr]
