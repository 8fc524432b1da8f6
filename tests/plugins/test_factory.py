"""What the DAG factory hands to spark-submit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.airflow


@pytest.mark.parametrize(("set_to", "handed_on"), [("2g", "2g"), ("", None)])
def test_the_heap_of_spark_s_driver_reaches_spark_submit(
    set_to: str, handed_on: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate_airflow.factory import pipeline_dags

    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_SPARK_MEMORY", set_to)
    computed = pipeline_dags()["availability"].get_task("compute")
    assert computed._get_hook()._driver_memory == handed_on
