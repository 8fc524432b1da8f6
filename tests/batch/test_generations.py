"""`generation` is edited while a batch of the old one is open: the new one finishes it, or it is named."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import delete

from tests.batch.committed import Committed
from tests.batch.test_planned_pipeline import damage
from tests.batch.test_source import Source
from tidegate.batch import finish_orphaned_streams, orphaned_streams, streams_without_file
from tidegate.cli import cli
from tidegate.ledger import Stream, schema
from tidegate_dev.broker import KafkaBroker

ROWS: dict[str, list[tuple[str, int | None]]] = {"first": [("1", 10)], "second": [("1", 11)]}


@pytest.fixture
def old(tmp_path: Path) -> Committed:
    """Return batch 1 of generation 1, decided and not published; the file has generation 2 already."""
    committed = Committed(tmp_path, "  - {kind: sql, table: seconds}", f"sqlite:///{tmp_path}/sink.db")
    committed.commit(1, ROWS)
    committed.lease.release()
    committed.file.write_text(committed.file.read_text().replace("source:", "generation: 2\nsource:", 1))
    return committed


def plan_open_batch(committed: Committed, seq: int) -> None:
    """Planned, computed, and not decided."""
    text = committed.file.read_text()
    committed.file.write_text(text.replace("generation: 2\n", ""))
    committed.compute(seq, ROWS)
    committed.lease.release()
    committed.file.write_text(text)


def finish(committed: Committed) -> None:
    finish_orphaned_streams(committed.app, committed.pipeline, "run-of-2")


def published(committed: Committed, seq: int = 1) -> dict[str, int]:
    return committed.app.ledger.publications(committed.stream, seq)


def findings(committed: Committed, *arguments: str) -> dict[str, tuple[str, str]]:
    """Return the findings of doctor about the old generation: check -> (ok, found)."""
    result = CliRunner().invoke(cli, ["doctor", *arguments, "--json"], env=committed.environment)
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return {row["check"]: (row["ok"], row["found"]) for row in rows if "generation 1" in row["check"]}


def test_old_generation_publishes_before_the_new_one_plans(old: Committed) -> None:
    finish(old)
    assert published(old) == {"sql:seconds": 1}
    assert old.query("SELECT stream, key, m FROM seconds") == [("visitors/1", "1", 11)]
    assert old.app.ledger.lease_holder(old.stream) is None
    finish(old)
    assert old.query("SELECT count(*) FROM seconds") == [(1,)]


def test_generation_with_a_file_has_its_own_runs(old: Committed) -> None:
    own = old.file.read_text().replace("generation: 2", "generation: 1")
    old.file.with_name("visitors_1.yaml").write_text(own)
    finish(old)
    assert published(old) == {}
    assert streams_without_file(old.app) == []


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("pipeline: visitors", "pipeline: visitors\nschedul: daily"),
        ("pipeline: visitors", 'pipeline: "visitors" # and\nstages: ['),
        ("generation: 1", "generation: one"),
        ("generation: 1\n", ""),  # that is 1
    ],
)
def test_generation_with_a_mistaken_file_is_left_alone(old: Committed, written: str, instead: str) -> None:
    own = old.file.read_text().replace("generation: 2", "generation: 1").replace(written, instead)
    broken = old.file.with_name("visitors_1.yaml")
    broken.write_text(own + "schedule: never\n")
    finish(old)
    assert published(old) == {}
    assert streams_without_file(old.app) == []
    for arguments in ((), ("visitors",)):
        by_check = findings(old, *arguments)
        state, finding = by_check["pipeline visitors, generation 1"]
        assert (state, finding.startswith("halted: batch 1 is the last")) == ("WRONG", True)
        assert finding.endswith(f"its file {broken} has a mistake: it continues when that is corrected")
        assert "batch 1 is committed and not published" in by_check["batches of visitors, generation 1"][1]
        assert "--choose drop-plan" not in str(by_check)


def test_broken_file_belongs_to_its_generation_only(old: Committed) -> None:
    old.file.with_name("visitors_3.yaml").write_text("pipeline: visitors\ngeneration: 3\nschedul: daily\n")
    old.file.with_name("nobody.yaml").write_text("stages: [\n")
    finish(old)
    assert published(old) == {"sql:seconds": 1}


def test_leased_stream_is_left_to_its_holder(old: Committed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lease = old.app.ledger.acquire(old.stream, "run-of-1")
    finish(old)
    assert published(old) == {}
    assert "visitors/1 is being worked on by run-of-1" in caplog.text
    lease.renew()  # it was not fenced


def test_open_batch_of_another_pipeline_is_ignored(old: Committed) -> None:
    old.file.write_text(old.file.read_text().replace("pipeline: visitors", "pipeline: guests"))
    finish(old)
    assert published(old) == {}


def test_undecided_batch_of_old_generation_is_only_named(
    old: Committed, caplog: pytest.LogCaptureFixture
) -> None:
    plan_open_batch(old, 2)
    finish(old)
    assert published(old) == {"sql:seconds": 1}
    assert published(old, 2) == {}
    assert old.app.ledger.head(old.stream).seq == 1
    assert (
        "batch 2 is planned and not decided, and no pipeline file has generation 1 of visitors" in caplog.text
    )


def test_unpublishable_batch_is_named_and_blocks_nobody(
    old: Committed, caplog: pytest.LogCaptureFixture
) -> None:
    database = old.folder / "sink.db"
    database.mkdir()
    finish(old)
    assert "What visitors/1 has decided cannot be published" in caplog.text
    assert published(old) == {}
    assert "batch 1 failed in publish" in findings(old)["batches of visitors, generation 1"][1]
    database.rmdir()
    finish(old)
    assert published(old) == {"sql:seconds": 1}


def test_unreadable_old_generation_is_named_and_blocks_nobody(
    old: Committed, caplog: pytest.LogCaptureFixture
) -> None:
    damage(old, old.stream)
    finish(old)
    assert "was planned by tidegate 3.0.0" in caplog.text
    wrong, finding = findings(old)["batches of visitors, generation 1"]
    assert (wrong, "PlanUnreadable" in finding) == ("WRONG", True)


def test_old_generation_without_pipeline_text_blocks_nobody(
    old: Committed, caplog: pytest.LogCaptureFixture
) -> None:
    with old.app.ledger._engine.begin() as connection:
        connection.execute(delete(schema.pipelines))
    assert orphaned_streams(old.app, old.pipeline) == [old.stream]
    finish(old)
    assert f"What {old.stream} has decided cannot be published" in caplog.text


def test_doctor_lists_every_stream_with_open_work(old: Committed) -> None:
    plan_open_batch(old, 2)
    for arguments in ((), ("visitors",)):
        by_check = findings(old, *arguments)
        assert by_check["pipeline visitors, generation 1"] == (
            "wait",
            "behind: batch 1 is the last, and no pipeline file has it any more",
        )
        waits, finding = by_check["batches of visitors, generation 1"]
        assert waits == "wait"
        assert "tidegate recover visitors --choose drop-plan --generation 1" in finding
    assert findings(old, "guests") == {}


def test_doctor_reports_a_pipeline_without_its_file(old: Committed) -> None:
    old.file.unlink()
    waits, finding = findings(old)["batches of visitors, generation 1"]
    assert (waits, finding.startswith("batch 1 is committed and not published to sql:seconds")) == (
        "wait",
        True,
    )


def test_plan_of_the_old_generation_can_be_dropped(old: Committed) -> None:
    finish(old)
    plan_open_batch(old, 2)
    arguments = ["recover", "visitors", "--generation", "1", "--choose", "drop-plan", "--yes"]
    result = CliRunner().invoke(cli, arguments, env=old.environment)
    assert "Batch 2 is forgotten" in result.stdout
    assert "batches of visitors, generation 1" not in findings(old)


def test_unknown_generation_is_refused(old: Committed) -> None:
    arguments = ["recover", "visitors", "--generation", "7", "--choose", "drop-plan"]
    result = CliRunner().invoke(cli, arguments, env=old.environment)
    assert "no generation 7 of a pipeline visitors" in str(result.exception)
    assert old.app.ledger.streams() == [Stream("visitors", 1)]


@pytest.mark.broker
def test_plan_step_finishes_the_old_generation(tmp_path: Path, broker: KafkaBroker) -> None:
    source = Source(tmp_path, broker.bootstrap_servers)
    source.send(1000)
    source.decide()
    old_stream = source.batches.stream
    assert source.batches.app.ledger.publications(old_stream, 1) == {}
    source.write("source:", "generation: 2\nsource:")
    plan = source.plan().plan
    assert plan is not None
    assert (plan.stream.generation, plan.seq) == (2, 1)
    assert source.batches.app.ledger.publications(old_stream, 1) == {"table": 0}
