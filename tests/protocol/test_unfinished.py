"""A batch that is begun and not through: what `doctor` says of it, without a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.manifests import manifest_ref
from tests.protocol.test_source import Source
from tests.world import World, stock_event
from tidegate.cli import cli
from tidegate.errors import (
    BufferFull,
    LakeDamaged,
    LakeUnavailable,
    Permanent,
    QualityFailed,
    RecordTooLarge,
    SchemaChanged,
)
from tidegate.ledger import Attempt
from tidegate.local.broker import KafkaBroker

pytestmark = pytest.mark.broker


def of_batches(environment: dict[str, str]) -> tuple[int, list[tuple[str, str]]]:
    """doctor's exit code, and what it says of batches."""
    result = CliRunner().invoke(cli, ["doctor", "--json"], env=environment)
    found = [row for row in json.loads(result.output) if row["check"].startswith("batches of ")]
    return result.exit_code, [(row["ok"], row["found"]) for row in found]


def drop_plan(world: World) -> None:
    CliRunner().invoke(cli, ["doctor", "availability", "--drop-plan"], env=world.environment)


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
    "SchemaChanged": (another_type, SchemaChanged, "batch 2 failed in compute", "--drop-plan"),
    "RecordTooLarge": (too_large, RecordTooLarge, "batch 1 failed in compute", "too_large: quarantine"),
    "QualityFailed": (strict_suite, QualityFailed, "batch 1 failed in validate", "--drop-plan"),
    "BufferFull": (small_buffer, BufferFull, "batch 1 failed in compute", "Raise `max_records`"),
}


@pytest.mark.spark
@pytest.mark.parametrize(("bring_about", "error", "step", "fix"), HALTS.values(), ids=HALTS)
def test_a_batch_that_no_retry_gets_through_is_wrong_until_its_plan_is_dropped(
    world: World, bring_about: Callable[[World], None], error: type[Permanent], step: str, fix: str
) -> None:
    bring_about(world)
    with pytest.raises(error) as raised:
        world.run("r")
    code, [(wrong, told)] = of_batches(world.environment)
    assert (code, wrong) == (2, "WRONG")
    assert told.startswith(f"{step} at 20")
    assert f"{error.__name__}: {raised.value}" in told
    assert fix in told
    drop_plan(world)
    assert of_batches(world.environment) == (0, [])


@pytest.mark.spark
def test_a_failure_that_a_retry_cures_is_a_note_until_the_batch_went_through(world: World) -> None:
    lake = Path(world.app.settings.lake)
    lake.write_text("a file where the folder should be")
    world.stock(1)
    with pytest.raises(LakeUnavailable):
        world.run("r")
    lake.unlink()
    code, [(waits, told)] = of_batches(world.environment)
    assert (code, waits) == (0, "wait")
    assert "LakeUnavailable" in told
    world.run("r")
    assert of_batches(world.environment) == (0, [])


@pytest.fixture
def source(tmp_path: Path, broker: KafkaBroker) -> Source:
    return Source(tmp_path, broker.bootstrap_servers)


def failing(source: Source, step: str) -> None:
    held = source.batches.app.ledger.acquire(source.batches.stream, "test")
    held.note_failure(1, step, QualityFailed("It failed", "Cure it."))
    held.release()


def test_a_step_that_went_through_since_it_failed_is_not_told_though_the_batch_is_not_committed(
    source: Source,
) -> None:
    source.plan()
    stream = source.batches.stream
    attempt = Attempt(stream, 1, manifest_ref("a1"), {"": {"read": 0}})
    for step, go_through in (
        ("compute", lambda held: held.add_attempt(attempt)),
        ("validate", lambda held: held.set_validated(attempt, True)),
    ):
        failing(source, step)
        code, [(wrong, told)] = of_batches(source.batches.environment)
        assert (code, wrong) == (2, "WRONG")
        assert told.endswith("QualityFailed: It failed. Cure it.")
        held = source.batches.app.ledger.acquire(stream, "test")
        go_through(held)
        held.release()
        assert of_batches(source.batches.environment) == (0, [])


def test_a_committed_batch_that_is_not_published_is_a_note(source: Source) -> None:
    source.decide()
    told = "batch 1 is committed and not published to table; the next run publishes it"
    assert of_batches(source.batches.environment) == (0, [("wait", told)])
    failing(source, "commit")  # it went through
    assert of_batches(source.batches.environment) == (0, [("wait", told)])
    source.batches.publish(1)
    assert of_batches(source.batches.environment) == (0, [])


@pytest.mark.parametrize("finish", [Source.plan, lambda source: source.batches.publish(1)])
def test_a_decided_batch_that_cannot_be_published_is_wrong_whoever_tried(
    source: Source, finish: Callable[[Source], object]
) -> None:
    plan = source.plan().plan
    assert plan is not None
    held = source.batches.app.ledger.acquire(source.batches.stream, "test")
    attempt = Attempt(
        source.batches.stream, 1, manifest_ref("a1"), {"": {"read": 1}, "second": {"emitted": 1}}
    )
    held.add_attempt(attempt)
    held.commit(plan, attempt)
    held.release()
    with pytest.raises(LakeDamaged):  # its outbox is gone
        finish(source)
    code, [(wrong, told)] = of_batches(source.batches.environment)
    assert (code, wrong) == (2, "WRONG")
    assert told.startswith("batch 1 failed in publish at 20")
    held = source.batches.app.ledger.acquire(source.batches.stream, "test")
    held.add_publication(1, "table", 1)
    held.release()
    assert of_batches(source.batches.environment) == (0, [])
