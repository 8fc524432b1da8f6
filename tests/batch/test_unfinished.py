"""A batch that is begun and not through: what `doctor` says of it, without a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka.admin import NewTopic

from tests.batch.test_source import Source
from tests.manifests import manifest_ref
from tests.world import World, stock_event
from tidegate import inspect
from tidegate.batch import publish
from tidegate.cli import cli
from tidegate.errors import (
    SINK_IS_AHEAD,
    BufferFull,
    Fenced,
    LakeDamaged,
    LakeUnavailable,
    Permanent,
    QualityFailed,
    RecordTooLarge,
    SchemaChanged,
    TopicRecreated,
)
from tidegate.ledger import Attempt, Run
from tidegate.ledger.stream_condition import ConditionKind
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker


def of_batches(environment: dict[str, str]) -> tuple[int, list[tuple[str, str]]]:
    """doctor's exit code, and what it says of batches."""
    result = CliRunner().invoke(cli, ["doctor", "--json"], env=environment)
    rows = [row for row in json.loads(result.output) if row["check"].startswith("batches of ")]
    return result.exit_code, [(row["ok"], row["found"]) for row in rows]


def drop_plan(world: World) -> None:
    CliRunner().invoke(
        cli, ["recover", "availability", "--choose", "drop-plan", "--yes"], env=world.environment
    )


def another_type(world: World) -> None:
    world.stock(1)
    world.run("before")
    world.write_pipeline(**{"quantity > 0": "sha2(storeId, 256)"})  # of a type that only Spark knows
    world.stock(2)


def too_large(world: World) -> None:
    world.write_pipeline(**{"quantity > 0": "lpad(storeId, 600000, 'é')"})
    world.stock(1)


def strict_suite(world: World) -> None:
    always = {"column": "isAvailable", "value_set": [True]}
    expectation = {"type": "expect_column_values_to_be_in_set", "kwargs": always}
    suite: dict[str, Any] = {"name": "strict", "meta": {}, "expectations": [expectation]}
    world.app.settings.expectations.mkdir()
    (world.app.settings.expectations / "strict.json").write_text(json.dumps(suite))
    world.write_pipeline(extra="quality: {suite: strict, on_failure: stop}")
    world.stock(1, 0)


def small_buffer(world: World) -> None:
    waits = "on: time_limit, after: 60s, clock: stream, buffer: {max_records: 1, when_full: shut_down}"
    world.write_pipeline(**{"on: change, equal: exact": waits})
    world.send(stock_event(1, product=1), stock_event(1, product=2))


HALTS = {
    "SchemaChanged": (another_type, SchemaChanged, "batch 2 failed in compute", "Raise `generation`"),
    "RecordTooLarge": (too_large, RecordTooLarge, "batch 1 failed in compute", "too_large: quarantine"),
    "QualityFailed": (strict_suite, QualityFailed, "batch 1 failed in validate", "or correct the pipeline"),
    "BufferFull": (small_buffer, BufferFull, "batch 1 failed in compute", "Raise `max_records`"),
}


@pytest.mark.spark
@pytest.mark.parametrize(("bring_about", "error", "step", "fix"), HALTS.values(), ids=HALTS)
@pytest.mark.sample(2)
def test_batch_that_no_retry_cures_is_wrong(
    world: World, bring_about: Callable[[World], None], error: type[Permanent], step: str, fix: str
) -> None:
    bring_about(world)
    with pytest.raises(error) as raised:
        world.run("r")
    code, [(wrong, finding)] = of_batches(world.environment)
    assert (code, wrong) == (2, "WRONG")
    assert finding.startswith(f"{step} at 20")
    assert f"{error.__name__}: {raised.value}" in finding
    assert fix in finding
    assert "tidegate recover availability --choose drop-plan" in finding
    drop_plan(world)
    assert of_batches(world.environment) == (0, [])


@pytest.mark.spark
def test_transient_failure_shows_until_the_batch_passes(world: World) -> None:
    lake = Path(world.app.settings.lake)
    lake.write_text("a file where the folder should be")
    world.stock(1)
    with pytest.raises(LakeUnavailable):
        world.run("r")
    assert condition_of(world) == "failing"
    lake.unlink()
    assert of_batches(world.environment) == (0, [])  # doctor looks itself
    world.run("r")
    assert condition_of(world) == "ok"


def condition_of(world: World) -> str:
    """The stream's condition as `status` has it."""
    (row,) = json.loads(CliRunner().invoke(cli, ["status", "--json"], env=world.environment).output)
    return str(row["condition"])


@pytest.fixture
def source(tmp_path: Path, broker: KafkaBroker) -> Source:
    return Source(tmp_path, broker.bootstrap_servers)


def failing(source: Source, step: str) -> None:
    lease = source.batches.app.ledger.acquire(source.batches.stream, "test")
    lease.note_failure(1, step, QualityFailed("It failed", "Cure it."))
    lease.release()


def test_later_success_hides_an_earlier_failure(
    source: Source,
) -> None:
    source.plan()
    stream = source.batches.stream
    attempt = Attempt(stream, 1, manifest_ref("a1"), {"": {"read": 0}})
    for step, go_through in (
        ("compute", lambda lease: lease.add_attempt(attempt)),
        ("validate", lambda lease: lease.set_validated(attempt, True)),
    ):
        failing(source, step)
        code, [(wrong, finding)] = of_batches(source.batches.environment)
        assert (code, wrong) == (2, "WRONG")
        assert finding.endswith("QualityFailed: It failed. Cure it.")
        lease = source.batches.app.ledger.acquire(stream, "test")
        go_through(lease)
        lease.release()
        assert of_batches(source.batches.environment) == (0, [])


def test_committed_unpublished_batch_is_a_note(source: Source) -> None:
    source.decide()
    message = "batch 1 is committed and not published to table, no try has failed"
    for _ in range(2):
        code, [(state, finding)] = of_batches(source.batches.environment)
        assert (code, state, finding.startswith(message)) == (0, "wait", True)
        failing(source, "commit")  # it went through
    source.batches.publish(1)
    assert of_batches(source.batches.environment) == (0, [])


@pytest.mark.parametrize("finish", [Source.plan, lambda source: source.batches.publish(1)])
def test_unpublishable_decided_batch_is_wrong(source: Source, finish: Callable[[Source], object]) -> None:
    plan = source.plan().plan
    assert plan is not None
    lease = source.batches.app.ledger.acquire(source.batches.stream, "test")
    attempt = Attempt(
        source.batches.stream, 1, manifest_ref("a1"), {"": {"read": 1}, "second": {"emitted": 1}}
    )
    lease.add_attempt(attempt)
    lease.commit(plan, attempt)
    lease.release()
    with pytest.raises(LakeDamaged):  # its outbox is missing
        finish(source)
    code, [(wrong, finding)] = of_batches(source.batches.environment)
    assert (code, wrong) == (2, "WRONG")
    assert finding.startswith("batch 1 failed in publish at 20")
    lease = source.batches.app.ledger.acquire(source.batches.stream, "test")
    lease.add_publication(1, "table", 1)
    lease.release()
    _, batches = of_batches(source.batches.environment)  # the table itself lacks it, which is another finding
    assert batches == []


def row_of(command: str, source: Source) -> dict[str, Any]:
    """The pipeline's row of `status` or `doctor`."""
    result = CliRunner().invoke(cli, [command, "--json"], env=source.batches.environment)
    rows: list[dict[str, Any]] = json.loads(result.output)
    return next(
        row for row in rows if "pipeline visitors" in (row.get("check"), f"pipeline {row.get('pipeline')}")
    )


def test_failing_plan_halts_until_one_passes(source: Source) -> None:
    source.send(1000)
    source.decide()
    source.batches.publish(1)
    app, stream = source.batches.app, source.batches.stream
    assert row_of("status", source)["condition"] == "ok"
    source.admin("delete_topics", [source.topic])
    source.admin("create_topics", [NewTopic(source.topic, 1, 1)])
    with pytest.raises(TopicRecreated):
        source.plan()
    (failed,) = inspect.stream_condition(app, stream).causes
    assert (failed.condition, failed.error) == (ConditionKind.HALTED, "TopicRecreated")
    assert failed.what.startswith("batch 2 failed in plan at 20")
    row = row_of("status", source)
    assert (row["condition"], row["causes"]) == ("halted", [failed.text])
    assert row_of("doctor", source)["ok"] == "WRONG"
    assert of_batches(source.batches.environment)[0] == 2
    lease = app.ledger.acquire(stream, "test")
    lease.add_run(Run("later", None, "nothing to read"))
    lease.release()
    assert inspect.stream_condition(app, stream).condition is ConditionKind.OK


@pytest.mark.parametrize("step", ["publish", "tables"])
def test_fenced_stream_is_wrong_although_fenced_is_transient(
    source: Source, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    source.send(1000)
    source.decide()
    app, stream = source.batches.app, source.batches.stream

    def fenced(*_: object) -> None:
        raise Fenced("The sink has batch 7 already", SINK_IS_AHEAD)

    where = "publish_to" if step == "publish" else "catch_up_tables"
    with monkeypatch.context() as patched:
        patched.setattr(publish, where, fenced)
        with pytest.raises(Fenced):
            source.batches.publish(1)
    assert inspect.stream_condition(app, stream).condition is ConditionKind.FENCED
    row = row_of("doctor", source)
    assert (row["ok"], row["found"].startswith("fenced: batch 1 is the last")) == ("WRONG", True)
    code, [(state, finding)] = of_batches(source.batches.environment)
    assert (code, state) == (2, "WRONG")
    assert f"batch 1 failed in {step} at 20" in finding
    assert SINK_IS_AHEAD in finding
    assert row_of("status", source)["condition"] == "fenced"
    source.batches.publish(1)
    assert inspect.stream_condition(app, stream).condition is ConditionKind.OK
