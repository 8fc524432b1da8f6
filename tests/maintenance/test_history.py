"""What leaves the ledger, and that nothing that anybody can still ask for is among it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, func, select

from tests.batch.aged import AT_ONCE, Aged
from tidegate.app import LONG_DONE, planned_for
from tidegate.batch import Outcome, Trigger, plan_batch, publish
from tidegate.batch.pipeline_files import head_plan
from tidegate.errors import Fenced, Halted, SettingsInvalid, StateGivenUp
from tidegate.inspect.explain import explain
from tidegate.ledger import Failure, Run, Stream, schema
from tidegate.ledger.planned import planned_pipeline
from tidegate.ledger.stream_condition import read_facts
from tidegate.maintenance import cleaning

SINK = "table:out"
PER_BATCH = (schema.plans, schema.attempts, schema.metrics, schema.publications, schema.failures)


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    """Eight batches and their metrics; the state before that of batch 5 was given up."""
    aged = Aged(tmp_path, "  - {kind: table, path: out}")
    for seq in range(1, 9):
        aged.batch(seq)
        lease = aged.app.ledger.acquire(aged.stream, "test")
        lease.set_metrics(seq, "", {"records": 1.0, "lag": 2.0})
        lease.add_publication(seq, SINK, 0)
        lease.note_failure(seq, "compute", Halted("it failed", "once"))
        lease.release()
    aged.snapshot(3)
    aged.snapshot(5, after=3)
    aged.clean(31)
    return aged


def removed(aged: Aged, **more: bool) -> int:
    return cleaning.remove_history(aged.app, aged.stream, aged.now, AT_ONCE, **more)


def seqs(aged: Aged, table: object = schema.plans) -> list[int]:
    engine: Engine = aged.app.ledger._engine
    with engine.connect() as connection:
        return sorted(set(connection.execute(select(table.c.seq)).scalars()))  # type: ignore[attr-defined]


def stored_seqs(aged: Aged) -> list[list[int]]:
    return [seqs(aged, table) for table in PER_BATCH]


def test_old_batches_keep_only_commit_and_run(aged: Aged) -> None:
    assert removed(aged) == 4
    assert stored_seqs(aged) == [[5, 6, 7, 8]] * len(PER_BATCH)
    assert seqs(aged, schema.commits) == list(range(1, 9))
    assert [aged.app.ledger.run(aged.stream, f"run-{seq}") for seq in (1, 8)] == [
        Run("run-1", 1),
        Run("run-8", 8),
    ]


def test_recently_expired_state_can_still_be_read(aged: Aged) -> None:
    assert cleaning.remove_history(aged.app, aged.stream, aged.now, timedelta(hours=24)) == 0
    assert seqs(aged) == list(range(1, 9))


def test_dry_run_counts_and_removes_none(aged: Aged) -> None:
    assert removed(aged, dry_run=True) == 4
    assert seqs(aged) == list(range(1, 9))


def test_cleaning_does_it_and_again_finds_nothing(aged: Aged) -> None:
    assert aged.clean(2).batches == 4
    assert aged.clean(0).batches == 0
    assert seqs(aged) == [5, 6, 7, 8]


def test_state_of_each_kept_batch_stays_readable(aged: Aged) -> None:
    before = {seq: (aged.app.ledger.state_manifests(aged.stream, seq), aged.keys(seq)) for seq in range(5, 9)}
    removed(aged)
    assert {
        seq: (aged.app.ledger.state_manifests(aged.stream, seq), aged.keys(seq)) for seq in range(5, 9)
    } == before
    with pytest.raises(StateGivenUp):
        aged.keys(4)


def test_replaced_snapshot_is_removed(aged: Aged) -> None:
    assert [made.seq for made in aged.app.ledger.snapshots(aged.stream)] == [3, 5]
    removed(aged)
    assert [made.seq for made in aged.app.ledger.snapshots(aged.stream)] == [5]


def test_nothing_is_removed_while_state_is_kept(tmp_path: Path) -> None:
    aged = Aged(tmp_path, "  - {kind: table, path: out}")
    for seq in (1, 2, 3):
        aged.batch(seq)
    aged.snapshot(2)
    assert removed(aged) == 0
    assert aged.app.ledger.remove_batches(aged.stream, 3, 10) == 0
    assert seqs(aged) == [1, 2, 3]


def test_last_published_batch_of_a_sink_stays(aged: Aged) -> None:
    """Keep the last published batch: if the progress is lost, the sink is searched for it."""
    lease = aged.app.ledger.acquire(aged.stream, "test")
    lease.add_publication(2, f"{SINK}2", 7)
    lease.add_publication(3, SINK, 7)
    lease.release()
    assert removed(aged) == 2
    assert stored_seqs(aged) == [[2, 3, 5, 6, 7, 8]] * len(PER_BATCH)
    assert aged.app.ledger.last_published(aged.stream, SINK) == 3
    assert aged.app.ledger.last_published(aged.stream, f"{SINK}2") == 2


def test_missing_batch_that_a_sink_lacks_halts(aged: Aged) -> None:
    lease = aged.app.ledger.acquire(aged.stream, "test")
    lease.add_publication(7, SINK, 7)
    removed(aged)
    (sink,) = aged.app.sinks(aged.stream, aged.pipeline)
    with pytest.raises(Halted, match=r"Batch 4 of .* would have to be compared with what table:out has"):
        sink.published(4)


def test_later_batches_had_nothing_for_the_sink(aged: Aged) -> None:
    removed(aged)
    (sink,) = aged.app.sinks(aged.stream, aged.pipeline)
    assert sink.published(4) is None


def test_long_transactions_are_not_needed(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "BATCHES_AT_ONCE", 3)
    counted = []
    remove = aged.app.ledger.remove_batches

    def counting(*arguments: object) -> int:
        counted.append(remove(*arguments))  # type: ignore[arg-type]
        return counted[-1]

    monkeypatch.setattr(aged.app.ledger, "remove_batches", counting)
    assert removed(aged) == 4
    assert counted == [3, 1, 0]


def test_interrupted_removal_is_finished_by_the_next(aged: Aged) -> None:
    aged.app.ledger.remove_batches(aged.stream, 5, 2)
    assert seqs(aged) == [3, 4, 5, 6, 7, 8]
    assert aged.keys() == [f"k{seq}" for seq in range(1, 9)]
    assert removed(aged) == 2


def test_another_stream_loses_nothing(aged: Aged) -> None:
    other = Stream("other", 1)
    lease = aged.app.ledger.acquire(other, "test")
    lease.set_metrics(1, "", {"records": 1.0})
    removed(aged)
    assert aged.app.ledger.metrics(other, 1) == {("", "records"): 1.0}


def test_cleared_run_without_batch_does_nothing(aged: Aged) -> None:
    removed(aged)
    pipeline = planned_pipeline(aged.app.ledger.plan(aged.stream, 8))  # type: ignore[arg-type]
    trigger = Trigger("run-2", clock_ms=0)
    assert plan_batch(aged.app, pipeline, trigger) == Outcome(None, LONG_DONE)
    assert planned_for(aged.app, aged.stream.pipeline, 1, "run-2") is None
    assert seqs(aged) == [5, 6, 7, 8]


def test_unknown_run_has_no_finished_batch(aged: Aged) -> None:
    removed(aged)
    with pytest.raises(Halted, match="no planned batch"):
        planned_for(aged.app, aged.stream.pipeline, 1, "run-99")


def test_a_batch_that_was_removed_cannot_be_explained(aged: Aged) -> None:
    removed(aged)
    with pytest.raises(StateGivenUp, match="Of batch 2 of visitors/1"):
        explain(aged.app, aged.stream, "k1", lambda: None, seq=2)  # type: ignore[arg-type, return-value]
    with pytest.raises(SettingsInvalid, match="from 1 to 8"):
        explain(aged.app, aged.stream, "k1", lambda: None, seq=9)  # type: ignore[arg-type, return-value]


def test_what_the_head_lacks_is_reported_as_before(aged: Aged) -> None:
    before = read_facts(aged.app.ledger, [aged.stream])
    removed(aged)
    assert read_facts(aged.app.ledger, [aged.stream]) == before
    assert isinstance(aged.app.ledger.failure(aged.stream, 8), Failure)


def test_the_ledger_stops_growing(aged: Aged) -> None:
    """But for two narrow rows of each batch."""
    removed(aged)
    engine: Engine = aged.app.ledger._engine
    with engine.connect() as connection:
        rows = [connection.execute(select(func.count()).select_from(table)).scalar() for table in PER_BATCH]
    assert rows == [4, 4, 8, 4, 4]


def test_plan_on_a_removed_head_is_overtaken(aged: Aged) -> None:
    head = replace(aged.app.ledger.head(aged.stream), seq=3)
    removed(aged)
    with pytest.raises(Fenced, match="later ones are committed"):
        head_plan(aged.app, head)


def test_publication_of_a_removed_head_is_overtaken(aged: Aged) -> None:
    plan = aged.app.ledger.plan(aged.stream, 3)
    lease = aged.app.ledger.acquire(aged.stream, "late")
    removed(aged)
    assert plan is not None
    with pytest.raises(Fenced, match="later ones are committed"):
        publish._publish(aged.app, lease, plan, None)


def test_head_without_its_attempt_halts(aged: Aged) -> None:
    plan = aged.app.ledger.plan(aged.stream, 8)
    lease = aged.app.ledger.acquire(aged.stream, "test")
    assert plan is not None
    with aged.app.ledger._engine.begin() as connection:
        connection.execute(delete(schema.attempts).where(schema.attempts.c.seq == 8))
    with pytest.raises(Halted, match="attempt of batch 8"):
        publish._publish(aged.app, lease, plan, None)
