"""What was planned and decided goes on, whatever today's grammar, settings and modules say."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from tests.batch.aged import state_rows
from tests.batch.committed import Committed
from tidegate import kernel, maintenance
from tidegate.app import App
from tidegate.batch import Trigger, compute_batch, draft, plan_batch
from tidegate.batch.pipeline_files import head_plan
from tidegate.cli import cli
from tidegate.errors import (
    Halted,
    LakeUnavailable,
    Permanent,
    PipelineChanged,
    PipelineInvalid,
    PlanUnreadable,
    Transient,
    UserFunctionFailed,
)
from tidegate.ledger import Plan, Stream
from tidegate.ledger.planned import planned_pipeline, planned_pipelines
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.planned import python_functions, with_digests
from tidegate.storage.compatibility import incompatible_changes, notable_changes

ROWS = {"first": [("k1", 1)], "second": [("k1", 1)]}


class Compared(Committed):
    """A stream whose pipeline file calls a Python function."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "  - {kind: table}")
        change = "emit: {on: change, equal: {python: shop.compare:same}}"
        self.file.write_text(self.file.read_text().replace("emit: {on: change}", change))


@pytest.fixture
def decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compared:
    """Return a batch that is decided and not published, whose file is refused now."""
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    decided = Compared(tmp_path)
    decided.states = {"second": state_rows([("k1", 1)])}
    decided.commit(1, ROWS)
    decided.lease.release()
    monkeypatch.delenv("TIDEGATE_PYTHON_MODULES")
    with pytest.raises(PipelineInvalid, match=r"shop\.compare"):
        _ = decided.pipeline
    return decided


def test_decided_batch_is_published_without_its_module(
    decided: Compared,
) -> None:
    assert decided.publish(1) == {"table": 1}


def test_maintenance_continues_without_a_module(
    decided: Compared,
) -> None:
    (pipeline,) = planned_pipelines(decided.app.ledger, decided.stream)
    assert [stage.name for stage in pipeline.stages] == ["first", "second"]
    assert maintenance.compact_state(decided.app, decided.stream).note == "compacted"
    assert maintenance.clean(decided.app, decided.stream, now=1e9).files == 0


def damage(committed: Committed, stream: Stream) -> None:
    """Make what the stream was planned with unreadable."""
    with committed.app.ledger._engine.begin() as connection:
        statement = "UPDATE tidegate_pipelines SET compiled = :form WHERE pipeline = :pipeline"
        form = '{"format": 7, "tidegate": "3.0.0", "pipeline": {}}'
        connection.execute(text(statement), {"form": form, "pipeline": stream.pipeline})


def test_batch_of_a_newer_tidegate_names_its_version(decided: Compared) -> None:
    damage(decided, decided.stream)
    with pytest.raises(PlanUnreadable, match=r"batch 1 of visitors/1 was planned by tidegate 3\.0\.0"):
        decided.publish(1)


def test_one_unreadable_stream_stops_no_others_cleaning(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}")
    plan = committed.commit(1, ROWS)
    broken = committed.app.ledger.acquire(Stream("broken", 1), "test")  # comes before `visitors`
    broken.add_plan(replace(plan, stream=broken.stream, lookups={"visitors/second": {"seq": 1}}))
    damage(committed, broken.stream)
    result = CliRunner().invoke(cli, ["compact", "--json"], env=committed.environment)
    assert [cleaned["pipeline"] for cleaned in json.loads(result.stdout)] == ["visitors"]
    assert isinstance(result.exception, PlanUnreadable)


def failing(errors: dict[str, Exception]) -> Callable[[Stream], str]:
    def work(stream: Stream) -> str:
        if stream.pipeline in errors:
            raise errors[stream.pipeline]
        return stream.pipeline

    return work


def test_failures_of_several_streams_make_one_error() -> None:
    streams = [Stream(name, 1) for name in "abc"]
    two = {"a": PlanUnreadable("a is broken"), "c": PlanUnreadable("c is broken")}
    done, error = maintenance.work_on_streams(streams, failing(two))
    assert (done, type(error)) == (["b"], Permanent)
    assert "a/1: PlanUnreadable: a is broken" in str(error)
    assert "c/1: PlanUnreadable: c is broken" in str(error)
    _, error = maintenance.work_on_streams(streams, failing({**two, "c": LakeUnavailable("away")}))
    assert type(error) is Transient
    assert maintenance.work_on_streams(streams, failing({})) == (["a", "b", "c"], None)


def edited(committed: Committed, before: str, after: str) -> None:
    committed.file.write_text(committed.file.read_text().replace(before, after))


def test_edit_unfit_for_the_state_is_refused_first(
    tmp_path: Path,
) -> None:
    committed = Committed(tmp_path, "  - {kind: table}")
    committed.commit(1, ROWS)
    committed.publish(1)
    edited(committed, "key: [customerId]", "key: [n]")
    trigger = Trigger("r", clock_ms=10_000)  # there is no Kafka that could be asked
    with pytest.raises(PipelineChanged, match=r"visitors/1 after batch 1 .*`source\.key`.*`generation`"):
        plan_batch(committed.app, committed.pipeline, trigger)
    head = committed.app.ledger.head(committed.stream)
    with pytest.raises(PipelineChanged):
        draft(committed.app, committed.pipeline, head, trigger)
    assert committed.app.ledger.open_plan(committed.stream) is None


def test_undone_edit_lets_the_next_batch_plan(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}")
    committed.commit(1, ROWS)
    committed.publish(1)
    drain = Trigger("r", clock_ms=10_000, drain=True)
    edited(committed, "name: second", "name: third")
    with pytest.raises(PipelineChanged, match=r"`stages` was .*second.* and is .*third"):
        plan_batch(committed.app, committed.pipeline, drain)
    edited(committed, "name: third", "name: second")
    assert plan_batch(committed.app, committed.pipeline, drain).note.startswith("batch 2")


def test_an_edit_that_consumers_see_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    committed = Committed(tmp_path, "  - {kind: table}")
    committed.commit(1, ROWS)
    committed.publish(1)
    edited(committed, "  - {kind: table}", "  - {kind: table, path: out}")
    plan_batch(committed.app, committed.pipeline, Trigger("r", clock_ms=10_000, drain=True))
    assert "visitors/1: The sink table:out is new: it gets emissions from now on" in caplog.messages
    assert "visitors/1: The sink table was removed: it gets nothing more" in caplog.messages


def test_head_without_its_plan_halts(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: table}")
    committed.commit(1, ROWS)
    committed.publish(1)
    head = committed.app.ledger.head(committed.stream)
    with pytest.raises(Halted, match="plan of batch 7"):
        head_plan(committed.app, replace(head, seq=7))


@pytest.fixture
def shop(modules: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the module `shop.compare`, which may be called."""
    (modules / "shop").mkdir()
    file = modules / "shop" / "compare.py"
    file.write_text("def same(old, new):\n    return old == new\n")
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "shop")
    return file


def planned_next(compared: Compared) -> Plan:
    drain = Trigger("next", clock_ms=10_000, drain=True)
    plan = plan_batch(compared.app, compared.pipeline, drain).plan
    assert plan is not None
    return plan


def test_plan_notes_required_function_versions(tmp_path: Path, shop: Path) -> None:
    compared = Compared(tmp_path)
    compared.commit(1, ROWS)
    compared.publish(1)
    pipeline = planned_pipeline(planned_next(compared))
    digest = hashlib.sha256(shop.read_bytes()).hexdigest()
    assert python_functions(pipeline) == {"shop.compare:same": digest}
    emit = kernel_stage(pipeline, pipeline.stages[1]).emit
    assert isinstance(emit, kernel.Change)
    assert emit.equal == kernel.PythonEqual("shop.compare:same", digest)
    assert emit.compared == ("m",)


def test_function_changed_between_batches_is_reported(
    tmp_path: Path, shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compared = Compared(tmp_path)
    earlier = with_digests(compared.pipeline)
    shop.write_text("def same(old, new):\n    return False\n")
    importlib.invalidate_caches()
    assert notable_changes(earlier, with_digests(compared.pipeline)) == [
        "The function shop.compare:same has changed: it decides with each key's next record"
    ]
    assert incompatible_changes(earlier, with_digests(compared.pipeline)) == []


def test_planned_batch_without_its_module_is_not_computed(
    tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = Compared(tmp_path)
    compared.commit(1, ROWS)
    compared.publish(1)
    plan = planned_next(compared)
    monkeypatch.delenv("TIDEGATE_PYTHON_MODULES")
    app = App.from_environment(compared.environment | {"TIDEGATE_KAFKA": "nowhere:9092"})
    with pytest.raises(UserFunctionFailed, match=r"shop\.compare:same.*List `shop\.compare`"):
        compute_batch(app, plan, plan.run_id, lambda: pytest.fail("Spark was started"))


def test_function_missing_at_plan_is_an_error(tmp_path: Path, shop: Path) -> None:
    shop.unlink()
    importlib.invalidate_caches()
    compared = Compared(tmp_path)
    compared.lease.release()
    with pytest.raises(UserFunctionFailed, match=r"shop\.compare:same cannot be imported"):
        plan_batch(compared.app, compared.pipeline, Trigger("r", clock_ms=10_000))
