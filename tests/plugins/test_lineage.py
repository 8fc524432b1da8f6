"""OpenLineage: what Airflow's provider gets of tasks, as its client writes it into a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.conftest import REPOSITORY
from tidegate.ledger import OffsetRange

pytestmark = pytest.mark.airflow

KAFKA = "kafka://broker-1:9092"
COLUMNS = [("customerId", "bigint"), ("n", "int")]
SINKS = """\
  - {kind: sql, table: seconds, with_key: true}
  - {kind: kafka, topic: firsts, stage: first}
quality: {suite: seconds}"""
SUITE = {
    "name": "seconds",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "m", "min_value": 100}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}},
    ],
}


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Committed:
    """Two batches of one run: the first is published, the second is computed."""
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations" / "seconds.json").write_text(json.dumps(SUITE))
    committed = Committed(tmp_path, SINKS, f"sqlite:///{tmp_path}/sink.db", "broker-1,broker-2:9093")
    planned = committed.planned

    def of_one_run(seq: int) -> Any:
        ranges = (OffsetRange("events", 0, 5 * seq, 5 * seq + 5), OffsetRange("events", 1, 3, 3))
        return replace(planned(seq), run_id="run" if seq == 1 else f"run#{seq}", ranges=ranges)

    monkeypatch.setattr(committed, "planned", of_one_run)
    for name, value in committed.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIDEGATE_EXPECTATIONS", str(tmp_path / "expectations"))
    committed.commit(1, {"first": [], "second": [("1", 11), ("2", 12)]})
    committed.lease.add_publication(1, "sql:seconds", 2)
    committed.compute(2, {"first": [], "second": [("3", 13)]})
    committed.lease.release()
    return committed


def task(task_id: str, run_id: str = "run") -> Any:
    """A task of the pipeline's DAG, with what Airflow renders before it runs."""
    from tidegate_airflow.factory import pipeline_dags

    task = pipeline_dags()["visitors"].get_task(task_id)
    for field in ("op_args", "application_args"):
        if hasattr(task, field):
            setattr(task, field, [run_id if "run_id" in str(part) else part for part in getattr(task, field)])
    return task


def reported(task: Any, tmp_path: Path, state: str = "SUCCESS") -> dict[str, Any]:
    """The event that the provider's extractor and its client's file transport make of a task."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager
    from airflow.utils.state import TaskInstanceState
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.transport.file import FileConfig, FileTransport

    run = SimpleNamespace(run_id="run")
    lineage = ExtractorManager().extract_metadata(
        run, task, task_instance_state=TaskInstanceState[state], task_instance=None
    )
    file = tmp_path / "events.json"
    client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(file), append=True)))
    client.emit(
        RunEvent(
            eventTime="2026-01-01T00:00:00Z",
            eventType=RunState.COMPLETE,
            run=Run("01941f29-7c00-7000-8000-000000000000"),
            job=Job("airflow", f"visitors.{task.task_id}"),
            inputs=lineage.inputs,
            outputs=lineage.outputs,
        )
    )
    event: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
    return event


def columns(dataset: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(field["name"], field.get("type")) for field in dataset["facets"]["schema"]["fields"]]


def offsets(dataset: dict[str, Any]) -> list[dict[str, int]]:
    partitions: list[dict[str, int]] = dataset["facets"]["tidegate_offsets"]["partitions"]
    return partitions


@pytest.mark.parametrize("state", ["RUNNING", "SUCCESS", "FAILED"])
def test_compute_lineage_has_topic_columns_and_offsets(
    state: str, committed: Committed, tmp_path: Path
) -> None:
    event = reported(task("compute"), tmp_path, state)
    (topic,) = event["inputs"]
    assert (topic["namespace"], topic["name"], columns(topic)) == (KAFKA, "events", COLUMNS)
    assert offsets(topic) == [{"partition": 0, "start": 5, "end": 10}]
    assert event["outputs"] == []


def test_publish_lineage_leads_from_topic_to_sinks(committed: Committed, tmp_path: Path) -> None:
    event = reported(task("publish"), tmp_path)
    assert [topic["name"] for topic in event["inputs"]] == ["events"]
    table, topic = event["outputs"]
    assert (table["namespace"], table["name"]) == (f"sqlite://{tmp_path}/sink.db", "seconds")
    assert columns(table) == [("customerId", "int64"), ("m", "int32")]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert (topic["namespace"], topic["name"], columns(topic)) == (KAFKA, "firsts", [("n", None)])
    assert topic["outputFacets"]["outputStatistics"]["rowCount"] == 0


def test_cover_lineage_has_the_age_of_emissions(committed: Committed, tmp_path: Path) -> None:
    committed.file.write_text(f"freshness: {{p95: 5m}}\n{committed.file.read_text()}")
    committed.compute(3, {"first": [], "second": [("4", 14)]})
    committed.lease.set_metrics(3, "", {"freshness.p50": 60.0, "freshness.p95": 240.0})
    facet = reported(task("cover"), tmp_path)["outputs"][0]["outputFacets"]["tidegate_freshness"]
    assert (facet["p50"], facet["p95"], facet["bound"]) == (60, 240, 300)


def test_cover_lineage_has_offsets_of_further_batches(committed: Committed, tmp_path: Path) -> None:
    (topic,) = reported(task("cover"), tmp_path)["inputs"]
    assert offsets(topic) == [{"partition": 0, "start": 10, "end": 15}]


def test_one_task_reports_all_batches_of_its_run(committed: Committed, tmp_path: Path) -> None:
    committed.file.write_text(f"tasks: one\n{committed.file.read_text()}")
    (topic,) = reported(task("batch"), tmp_path)["inputs"]
    assert offsets(topic) == [{"partition": 0, "start": 5, "end": 15}]


def test_a_task_before_its_plan_reports_no_topics(committed: Committed, tmp_path: Path) -> None:
    event = reported(task("compute", "another_run"), tmp_path, "RUNNING")
    assert (event["inputs"], event["outputs"]) == ([], [])


def test_failed_validation_lineage_has_each_expectation(committed: Committed, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    validate = task("validate", "run#2")
    with pytest.raises(AirflowFailException, match="does not pass its quality suite"):
        validate.execute({})
    validate.op_args = ["visitors", 1, "run"]
    (sink,) = reported(validate, tmp_path, "FAILED")["inputs"]
    assert sink["name"] == "seconds"
    assertions = sink["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [
        (assertion["assertion"], assertion["success"], assertion.get("column")) for assertion in assertions
    ] == [
        ("expect_column_values_to_be_between", False, "m"),
        ("expect_table_row_count_to_be_between", True, None),
    ]
    assert assertions[0]["actual"] == "1 unexpected"


@pytest.mark.parametrize(
    ("dataset", "namespace", "name"),
    [
        (("topic", "kafka-1,kafka-2:9093", "stock"), "kafka://kafka-1:9092", "stock"),
        (
            ("table", "postgresql+psycopg://me:secret@db/shop", "stock"),
            "postgres://db:5432",
            "shop.public.stock",
        ),
        (("table", "postgresql://me@db:7/shop", "reports.stock"), "postgres://db:7", "shop.reports.stock"),
        (
            ("table", "snowflake://me@account/shop/public", "stock"),
            "snowflake://account",
            "shop.public.stock",
        ),
        (
            ("table", "snowflake://me@account/shop/public", "lake.stock"),
            "snowflake://account",
            "shop.lake.stock",
        ),
        (("table", "mysql://me:secret@db/shop", "stock"), "mysql://db", "shop.stock"),
        (("table", "sqlite:////data/sink.db", "stock"), "sqlite:///data/sink.db", "stock"),
        (("folder", "s3://lake/shop/stock"), "s3://lake", "shop/stock"),
        (("folder", "file:///lake/stock"), "file", "/lake/stock"),
        (("folder", "/lake/stock"), "file", "/lake/stock"),
    ],
)
def test_datasets_are_named_by_openlineages_rules_without_secrets(
    dataset: tuple[str, ...], namespace: str, name: str
) -> None:
    from tidegate.sinks import port as names

    kind, *where = dataset
    assert getattr(names, f"{kind}_dataset")(*where) == (namespace, name)


def test_openlineage_is_imported_by_one_module_only() -> None:
    importing = [
        path.name
        for folder in ("include/tidegate", "plugins/tidegate_airflow")
        for path in (REPOSITORY / folder).rglob("*.py")
        if "openlineage." in path.read_text() and "import" in path.read_text()
    ]
    assert importing == ["lineage.py"]
