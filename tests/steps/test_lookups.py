"""A plan pins what its lookups read: a table's version, or the head of another pipeline's state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.steps.committed import Committed
from tidegate.errors import LookupMissing, PipelineInvalid
from tidegate.ledger import Attempt, Snapshot, Stream
from tidegate.spec import Pipeline, parse_pipeline
from tidegate.steps.lookups import pinned_lookups, read_through


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    return Committed(tmp_path, "  - {kind: table}", "sqlite://")


def looking_up(committed: Committed, table: str) -> Pipeline:
    text = committed.file.read_text().replace("pipeline: visitors", "pipeline: other")
    return parse_pipeline(
        f"{text}\nlookup: [{{table: {table}, on: [customerId], columns: [name]}}]\n", "other.yaml"
    )


def test_a_delta_table_is_pinned_to_its_version(committed: Committed, tmp_path: Path) -> None:
    path = str(tmp_path / "stores")
    for version in (0, 1):
        write_deltalake(path, pa.table({"customerId": [1], "name": ["x"]}), mode="append")
        assert pinned_lookups(committed.app, looking_up(committed, path)) == {path: {"version": version}}


def test_a_table_that_does_not_exist_is_an_error_that_names_it(committed: Committed, tmp_path: Path) -> None:
    with pytest.raises(LookupMissing, match=r"nowhere does not exist.*Write it"):
        pinned_lookups(committed.app, looking_up(committed, str(tmp_path / "nowhere")))


def test_a_state_is_pinned_to_the_head_of_the_highest_generation_that_has_one(committed: Committed) -> None:
    committed.commit(1, {})
    committed.commit(2, {})
    pipeline = looking_up(committed, "visitors/second")
    pinned = {"pipeline": "visitors", "generation": 1, "seq": 2, "stage": "second"}
    assert pinned_lookups(committed.app, pipeline) == {"visitors/second": pinned}
    newer = committed.app.ledger.acquire(Stream("visitors", 2), "test")
    plan = committed.app.ledger.plan(committed.stream, 1)
    assert plan is not None
    newer.add_plan(replace(plan, stream=newer.stream))
    assert pinned_lookups(committed.app, pipeline) == {"visitors/second": pinned}
    newer.commit(plan, Attempt(newer.stream, 1, "b1", {}))
    found = pinned_lookups(committed.app, pipeline)["visitors/second"]
    assert (found["generation"], found["seq"]) == (2, 1)


def test_a_pinned_state_is_read_through_whichever_snapshot_there_is(committed: Committed) -> None:
    for seq in (1, 2, 3):
        committed.commit(seq, {})
    ledger = committed.app.ledger
    plan = ledger.plan(committed.stream, 1)
    assert plan is not None
    pin = {"pipeline": "visitors", "generation": 1, "seq": 2, "stage": "second"}
    pinned = replace(plan, lookups={"visitors/second": pin, "/a/table": {"version": 1}})
    assert read_through(ledger, pinned) == {"visitors/second": ["a1", "a2"]}
    ledger.add_snapshot(Snapshot(committed.stream, 2, "s2"), after=0)
    assert read_through(ledger, pinned) == {"visitors/second": ["s2"]}
    ledger.add_snapshot(Snapshot(committed.stream, 3, "s3"), after=2)
    assert read_through(ledger, pinned) == {"visitors/second": ["s2"]}


def test_a_pipeline_without_a_batch_is_an_error_that_says_to_run_it(committed: Committed) -> None:
    committed.compute(1, {})
    with pytest.raises(LookupMissing, match="tidegate run visitors"):
        pinned_lookups(committed.app, looking_up(committed, "visitors/second"))


def test_a_stage_that_the_pipeline_does_not_have_is_an_error_that_names_those_it_has(
    committed: Committed,
) -> None:
    committed.commit(1, {})
    with pytest.raises(LookupMissing, match="first, second"):
        pinned_lookups(committed.app, looking_up(committed, "visitors/third"))


def test_a_state_with_windows_is_not_looked_up_without_the_window(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    text = committed.file.read_text()
    committed.file.write_text(text.replace("{name: first,", "{name: first, window: {tumbling: 1h},"))
    committed.commit(1, {})
    with pytest.raises(PipelineInvalid, match=r"a row for each window of a key.*Add `window_start`"):
        pinned_lookups(committed.app, looking_up(committed, "visitors/first"))
    # the stage beside it has none
    assert pinned_lookups(committed.app, looking_up(committed, "visitors/second"))
