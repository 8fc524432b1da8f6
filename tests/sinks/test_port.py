"""A new kind of sink is one model and one implementation of the port: all steps work with it as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tests.batch.committed import Committed
from tidegate import inspect
from tidegate.batch import check_progress, commit_batch, connections, validate_batch
from tidegate.errors import Halted, SinkRefused
from tidegate.failpoints import FailpointRaised
from tidegate.ledger import LeasedLedger
from tidegate.model import compiled
from tidegate.model.pipeline import Pipeline
from tidegate.recovery import Situation
from tidegate.recovery.sinks import RestoreProgress
from tidegate.sinks.model import SinkModel
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import Dataset, OpenSink

ROWS: dict[str, list[tuple[int, str]]] = {}
"""Shard -> batch and key of each emission: what the memory of this process has."""


class MemorySink(SinkModel):
    """Emissions go nowhere else; `refuses` one key."""

    publisher = __name__
    kind: Literal["memory"] = "memory"
    refuses: str = ""

    @property
    def name(self) -> str:
        return "memory"


class OpenMemory(OpenSink[MemorySink]):
    """Rows and progress are one: the newest batch among the rows."""

    title = "memory"
    dataset = Dataset("memory", "rows")

    def check_outbox(self, outbox: Outbox) -> None:
        if self.declared.refuses in self._keys(outbox):
            raise SinkRefused(f"{self.declared.refuses} is not for me")

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        rows = ROWS.setdefault(self.shard, [])
        if max((seq for seq, _ in rows), default=0) < outbox.plan.seq:
            rows += [(outbox.plan.seq, key) for key in self._keys(outbox)]

    def erasure_effect(self) -> str:
        return "Rows stay."

    def restart_effect(self, seq: int) -> str:
        return f"Rows after batch {seq} go."

    def restart_after(self, lease: LeasedLedger, seq: int) -> None:
        ROWS[self.shard] = [row for row in ROWS.get(self.shard, []) if row[0] <= seq]

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        return sum(row[0] == seq for row in ROWS.get(self.shard, []))

    def _keys(self, outbox: Outbox) -> list[str]:
        return [key for batch in outbox.batches(["key"]) for key in batch["key"].to_pylist()]


SINK = OpenMemory


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """A stream whose pipelines have this sink in the place of the one in the file."""
    monkeypatch.setitem(compiled.parts(), "MemorySink", MemorySink)
    file = Committed.pipeline.fget
    assert file is not None

    def with_memory(self: Committed) -> Pipeline:
        return file(self).model_copy(update={"sinks": (MemorySink.model_construct(stage=None, refuses="9"),)})

    monkeypatch.setattr(Committed, "pipeline", property(with_memory))
    ROWS.clear()
    return Committed(tmp_path, "  - {kind: table}")


def rows() -> list[tuple[int, str]]:
    (published,) = ROWS.values()
    return published


def test_each_batch_is_published_to_it_once(committed: Committed) -> None:
    committed.commit(1, {"first": [], "second": [("1", 1), ("2", 1)]})
    assert committed.publish(1) == {"memory": 2}
    assert committed.publish(1) == {"memory": 2}
    committed.commit(2, {"first": [], "second": [("3", 1)]})
    assert committed.publish(2) == {"memory": 1}
    assert rows() == [(1, "1"), (1, "2"), (2, "3")]


def test_unnoted_publication_is_not_repeated(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    committed.commit(1, {"first": [], "second": [("1", 1)]})
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "ledger.add_publication=raise@1")
    with pytest.raises(FailpointRaised):
        committed.publish(1)
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    assert committed.publish(1) == {"memory": 1}
    assert rows() == [(1, "1")]


def test_refused_value_stops_before_the_decision(committed: Committed) -> None:
    plan = committed.compute(1, {"first": [], "second": [("9", 1)]})
    with pytest.raises(SinkRefused, match="9 is not for me"):
        validate_batch(committed.app, plan, "test")
    with pytest.raises(Halted, match="not validated"):
        commit_batch(committed.app, plan, "test")


def test_doctor_checks_sink_with_permanent_progress(
    committed: Committed,
) -> None:
    committed.commit(1, {"first": [], "second": [("1", 1)]})
    committed.publish(1)
    assert inspect.sink_errors(committed.app, committed.pipeline) == []
    check_progress(committed.app, committed.stream)
    assert inspect.sink_warnings(committed.app, committed.pipeline) == []
    assert connections(committed.app.ledger, committed.stream) == {("kafka", None)}
    assert RestoreProgress().propose(Situation(committed.app, committed.stream)) is None
