"""Topics that a pattern selects, on a real broker."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from kafka.admin import NewTopic

from tests.batch.test_source import Source
from tidegate.batch import new_topics
from tidegate.cli import cli
from tidegate.errors import PipelineChanged, TopicMissing
from tidegate.ledger.planned import planned_pipeline
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker


class Matched(Source):
    """A stream that reads all topics whose names begin like its first one."""

    def __init__(self, folder: Path, servers: str) -> None:
        super().__init__(folder, servers)
        self.prefix = f"orders-{uuid4().hex[:8]}"
        self.write(f"topics: [{self.topic}]", f'topics: {{pattern: "{self.prefix}-.*"}}')

    def create(self, name: str, *timestamps_ms: int) -> str:
        """Create a topic that the pattern selects, with records."""
        self.topic = f"{self.prefix}-{name}"
        self.admin("create_topics", [NewTopic(self.topic, 1, 1)])
        self.send(*timestamps_ms)
        return self.topic

    def show_plan(self) -> tuple[list[str], list[str]]:
        """Return the topics that `tidegate plan` would read, and the new ones."""
        shown = CliRunner().invoke(cli, ["plan", "visitors", "--json"], env=self.batches.environment)
        document = json.loads(shown.output)
        return [row["topic"] for row in document["ranges"]], document["new_topics"]


@pytest.fixture
def matched(tmp_path: Path, broker: KafkaBroker) -> Matched:
    return Matched(tmp_path, broker.bootstrap_servers)


def test_new_topic_is_read_from_beginning_and_named(
    matched: Matched, caplog: pytest.LogCaptureFixture
) -> None:
    first = matched.create("eu", 1, 2)
    matched.admin("create_topics", [NewTopic(f"x{matched.prefix}-eu", 1, 1)])
    assert matched.decide() == [(0, 0, 2)]
    second = matched.create("us", 1, 2, 3)
    assert matched.show_plan() == ([first, second], [second])
    assert f"new topics: {second}" in matched.doctor()[1]
    with caplog.at_level(logging.INFO, "tidegate"):
        outcome = matched.plan()
    assert f"new topics, read from their beginning: {second}" in caplog.text
    assert outcome.note.endswith(f"; new topics, read from their beginning: {second}")
    assert outcome.plan is not None
    assert [(at.topic, at.start, at.end) for at in outcome.plan.ranges] == [(first, 2, 2), (second, 0, 3)]
    # a retry, and a later run, go on with the plan: it has the names, and a newer topic is not among them
    matched.create("asia", 1)
    again = matched.plan().plan
    assert again == outcome.plan
    assert planned_pipeline(again).sources.topics == (first, second)


def test_start_counts_only_for_the_first_batch(matched: Matched) -> None:
    """A record that came before its topic was seen must not be lost, whatever `start` says."""
    matched.write("format:", "start: latest\n  format:")
    matched.create("eu", 1, 2)
    assert matched.decide() == [(0, 2, 2)]
    matched.create("us", 1)
    assert matched.decide() == [(0, 2, 2), (0, 0, 1)]


def test_most_records_are_shared_with_new_topics(matched: Matched) -> None:
    matched.write("format:", "max_records: 4\n  format:")
    matched.create("eu", *range(9))
    assert matched.decide() == [(0, 0, 4)]
    matched.create("us", *range(9))
    assert matched.decide() == [(0, 4, 6), (0, 0, 2)]


def test_topic_that_vanished_halts_with_its_name(matched: Matched) -> None:
    first = matched.create("eu", 1)
    matched.create("us", 1)
    matched.decide()
    matched.admin("delete_topics", [first])
    with pytest.raises(TopicMissing, match=rf"^{first} at .* was read up to now.*raise `generation`"):
        matched.plan()
    assert matched.doctor()[0] == 2
    matched.admin("create_topics", [NewTopic(first, 1, 1)])  # it is another topic now
    assert "TopicRecreated" in matched.doctor()[1]


def test_pattern_that_selects_nothing_waits_for_a_topic(matched: Matched) -> None:
    with pytest.raises(TopicMissing, match=r"No topic at .* matches the pattern"):
        matched.plan()
    assert matched.doctor()[0] == 0
    matched.create("eu", 1)
    assert matched.decide() == [(0, 0, 1)]


def test_internal_topics_never_match(matched: Matched) -> None:
    topic = matched.create("eu", 1)
    matched.write(f'"{matched.prefix}-.*"', f'"{matched.prefix}-.*|__.*|tidegate-.*"')
    with matched.batches.app.log(None) as log:
        assert topic in log.topics()
        assert [name for name in log.topics() if name.startswith(("__", "tidegate-"))] == []
    assert matched.decide() == [(0, 0, 1)]


def test_edit_may_widen_a_list_to_a_pattern(matched: Matched) -> None:
    topic = matched.create("eu", 1)
    matched.write(f'{{pattern: "{matched.prefix}-.*"}}', f"[{topic}]")
    matched.decide()
    matched.write(f"[{topic}]", f'{{pattern: "{matched.prefix}-u.*"}}')
    with pytest.raises(PipelineChanged, match=r"source\.topics"):
        matched.plan()
    matched.write(f'"{matched.prefix}-u.*"', f'"{matched.prefix}-.*"')
    added = matched.create("us", 1)
    plan = matched.plan().plan
    assert plan is not None
    head = matched.batches.app.ledger.head(matched.batches.stream)
    assert new_topics(matched.batches.pipeline.sources, head, plan.ranges) == [added]
    assert [at.topic for at in plan.ranges] == [topic, added]
