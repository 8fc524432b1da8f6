"""What another generation or pipeline has sent to the same sink is sent again only by a word of the user."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tidegate.batch import Trigger, draft
from tidegate.batch.pipeline_files import require_start_over
from tidegate.errors import StartOverRefused
from tidegate.ledger import Head, OffsetRange, Plan, Stream


class Renamed(Committed):
    """A stream that has sent what came of events[0] 0-9 to a table of a database. The file may change."""

    def __init__(self, folder: Path, sinks: str = "  - {kind: sql, table: out, mode: append}") -> None:
        super().__init__(folder, sinks, sql=f"sqlite:///{folder}/out.db")
        self.offsets = 0, 0
        self.send(self.stream, 1, 0, 10)

    def planned(self, seq: int) -> Plan:
        return replace(super().planned(seq), ranges=(OffsetRange("events", 0, *self.offsets),))

    def plan(self, stream: Stream, seq: int, start: int, end: int, topic: str = "id") -> Plan:
        self.stream, self.offsets = stream, (start, end)
        return replace(self.planned(seq), topic_ids={"events": topic})

    def send(self, stream: Stream, seq: int, start: int, end: int) -> None:
        self.stream, self.offsets = stream, (start, end)
        self.commit(seq, {"second": [("k1", 1)]})
        self.publish(seq)

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def check(self, plan: Plan) -> None:
        require_start_over(self.app, self.pipeline, self.app.ledger.head(plan.stream), plan)


@pytest.fixture
def renamed(tmp_path: Path) -> Renamed:
    return Renamed(tmp_path)


def test_a_renamed_pipeline_does_not_send_again(renamed: Renamed) -> None:
    renamed.edit("pipeline: visitors", "pipeline: guests")
    with pytest.raises(StartOverRefused, match=r"visitors/1 has sent to .*out what came of events\[0\] 4-9"):
        renamed.check(renamed.plan(Stream("guests", 1), 1, 4, 5))


def test_a_raised_generation_does_not_send_again(renamed: Renamed) -> None:
    renamed.edit("pipeline: visitors", "pipeline: visitors\ngeneration: 2")
    with pytest.raises(StartOverRefused, match=r"visitors/1 .*events\[0\] 0-9"):
        renamed.check(renamed.plan(Stream("visitors", 2), 1, 0, 20))


def test_lowered_generation_does_not_repeat_higher_output(renamed: Renamed) -> None:
    renamed.send(Stream("visitors", 2), 1, 0, 30)
    with pytest.raises(StartOverRefused, match=r"visitors/2 .*events\[0\] 10-29"):
        renamed.check(renamed.plan(Stream("visitors", 1), 2, 10, 40))


def test_a_generation_that_was_started_over_goes_on(renamed: Renamed) -> None:
    renamed.send(Stream("visitors", 2), 1, 0, 3)
    renamed.edit("pipeline: visitors", "pipeline: visitors\ngeneration: 2")
    renamed.check(renamed.plan(Stream("visitors", 2), 2, 3, 8))


@pytest.mark.parametrize(
    ("start", "topic", "table"), [(10, "id", "out"), (0, "another", "out"), (0, "id", "another")]
)
def test_what_was_not_sent_there_is_sent(renamed: Renamed, start: int, topic: str, table: str) -> None:
    renamed.edit("pipeline: visitors", "pipeline: guests")
    renamed.edit("table: out", f"table: {table}")
    renamed.check(renamed.plan(Stream("guests", 1), 1, start, 20, topic))


def test_the_tables_of_two_generations_are_apart(tmp_path: Path) -> None:
    apart = Renamed(tmp_path, "  - {kind: table}")
    apart.edit("pipeline: visitors", "pipeline: visitors\ngeneration: 2")
    apart.check(apart.plan(Stream("visitors", 2), 1, 0, 20))


@pytest.mark.parametrize("from_start", [False, True])
def test_start_over_is_planned_once_requested(
    renamed: Renamed, monkeypatch: pytest.MonkeyPatch, from_start: bool
) -> None:
    asked: list[Head] = []
    monkeypatch.setattr(
        "tidegate.batch.plan.require_start_over", lambda _app, _file, head, _plan: asked.append(head)
    )
    pipeline, head = renamed.pipeline, renamed.app.ledger.head(renamed.stream)
    drain = Trigger("r", 9_000, now_ms=9_000, drain=True)
    if not from_start:
        draft(renamed.app, pipeline, head, drain)
        assert asked == [head]
        renamed.edit("pipeline: visitors", "pipeline: visitors\nstart_over: true")
    draft(renamed.app, renamed.pipeline, head, replace(drain, from_start=from_start))
    assert len(asked) == (not from_start)
