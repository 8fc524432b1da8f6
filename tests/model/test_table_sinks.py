"""`sinks`: into a table, whose folder must not hold a pipeline's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.files import GOOD, made, refused
from tidegate.errors import PipelineInvalid
from tidegate.model.names import STREAM_FOLDERS
from tidegate.yaml.load import load_pipeline_of_folder, load_pipelines, parse_pipeline

ANOTHER = """\
pipeline: another
schedule: null
source: {topics: [in], format: json, columns: "id int", key: [id]}
stages: [{name: out, emit: {on: change}}]
sinks: [{kind: table, path: levels/out}]
"""


@pytest.mark.parametrize("path", ["p", "p/g1/s/state", "p/out"])
def test_a_path_in_the_own_folder_is_refused(path: str) -> None:
    ((field, message, fix),) = refused(pipeline="p", sinks=[{"kind": "table", "path": path}])
    assert (field, fix[:5]) == ("sinks.0.path", "Write")
    assert "the lake's folder of this pipeline" in message


def test_a_path_beside_the_own_folder_is_taken() -> None:
    (sink,) = made(pipeline="p", sinks=[{"kind": "table", "path": "out/p"}]).sinks
    assert sink.lake_folder == "out"


def test_a_path_in_another_pipelines_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "levels.yaml").write_text(GOOD)
    (tmp_path / "another.yaml").write_text(ANOTHER)
    pipelines, (error,) = load_pipelines(tmp_path)
    assert list(pipelines) == ["levels"]
    assert "folder of the pipeline `levels`" in error.problems[0].message
    with pytest.raises(PipelineInvalid, match="folder of the pipeline `levels`"):
        load_pipeline_of_folder(tmp_path / "another.yaml")


@pytest.mark.parametrize("name", STREAM_FOLDERS)
def test_stage_named_like_a_stream_folder_is_refused(name: str) -> None:
    text = ANOTHER.replace("levels/out", "out").replace("name: out", f"name: {name}")
    with pytest.raises(PipelineInvalid, match="is a folder that each pipeline has"):
        parse_pipeline(text, "p.yaml")


@pytest.mark.parametrize(
    ("sink", "name", "meaning"),
    [
        ({"kind": "table", "path": "p2"}, "reason", "the Delta table has a column of that name: the reason"),
        ({"kind": "table"}, "Seq", "the Delta table has a column of that name: the batch"),
        (
            {"kind": "iceberg", "table": "shop.levels"},
            "Stream",
            "the Iceberg table has a column of that name: the pipeline and its generation",
        ),
        (
            {"kind": "clickhouse", "table": "levels"},
            "Row_version",
            "the ClickHouse table has a column of that name: the version by which the newest row is chosen",
        ),
    ],
)
def test_a_column_of_the_table_is_refused(sink: dict[str, str], name: str, meaning: str) -> None:
    stage = {"select": {name: "cents"}, "emit": {"on": "update"}}
    ((field, message, fix),) = refused(stage, sinks=[sink])
    assert field == ("sinks.0.path" if sink["kind"] == "table" else "sinks.0.mode")
    assert meaning in message
    assert f"event_{name}" in fix
