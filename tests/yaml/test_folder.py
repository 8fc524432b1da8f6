"""A folder of pipeline files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.files import GOOD
from tidegate.errors import PipelineInvalid
from tidegate.yaml.folder import dag_id_of
from tidegate.yaml.load import load_defaults, load_pipeline_of_folder, load_pipelines


def test_folder_lists_pipelines_by_file_name(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(GOOD.replace("pipeline: levels", "pipeline: first"))
    (tmp_path / "a.yaml").write_text(GOOD.replace("pipeline: levels", "pipeline: second"))
    (tmp_path / "README.md").write_text("not a pipeline")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "c.yaml").write_text("not a pipeline either")
    pipelines, errors = load_pipelines(tmp_path)
    assert {stem: pipeline.pipeline for stem, pipeline in pipelines.items()} == {"a": "second", "b": "first"}
    assert errors == []


def test_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("pipeline: [")
    (tmp_path / "b.yaml").write_text(GOOD)
    pipelines, errors = load_pipelines(tmp_path)
    assert list(pipelines) == ["b"]
    assert [error.problems[0].file for error in errors] == [str(tmp_path / "a.yaml")]


def test_two_files_of_one_generation_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# the same\n" + GOOD)
    (tmp_path / "b.yaml").write_text(GOOD)
    pipelines, errors = load_pipelines(tmp_path)
    assert pipelines == {}
    assert [(error.problems[0].line, error.problems[0].field) for error in errors] == [
        (2, "pipeline"),
        (1, "pipeline"),
    ]
    assert str(tmp_path / "b.yaml") in errors[0].problems[0].message


@pytest.mark.parametrize("name", ["levels (copy)", "a b", "a.promote", "tidegate_maintenance", "x" * 141])
def test_name_that_no_dag_can_have_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(GOOD)
    pipelines, errors = load_pipelines(tmp_path)
    assert pipelines == {}
    assert [problem.message for problem in errors[0].problems] == [
        f"the name of the file, {name!r}, cannot be the id of its DAG"
    ]
    with pytest.raises(PipelineInvalid, match="Rename it"):
        load_pipeline_of_folder(path)
    assert dag_id_of(name).endswith("_invalid")


def test_misnamed_copy_does_not_stop_the_original(tmp_path: Path) -> None:
    for name in ("copy of levels", "levels"):
        (tmp_path / f"{name}.yaml").write_text(GOOD)
    pipelines, errors = load_pipelines(tmp_path)
    assert list(pipelines) == ["levels"]
    assert [error.problems[0].name for error in errors] == ["copy of levels.yaml"]
    assert load_pipeline_of_folder(tmp_path / "levels.yaml") == pipelines["levels"]


def test_hidden_files_of_editors_are_no_pipelines(tmp_path: Path) -> None:
    (tmp_path / "levels.yaml").write_text(GOOD)
    (tmp_path / ".#levels.yaml").symlink_to("somebody@machine.1:2")
    (tmp_path / "._levels.yaml").write_bytes(b"\0\5")
    pipelines, errors = load_pipelines(tmp_path)
    assert (list(pipelines), errors) == (["levels"], [])


def test_link_to_no_defaults_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "defaults.yaml").symlink_to("nowhere.yaml")
    with pytest.raises(PipelineInvalid, match="cannot be read"):
        load_defaults(tmp_path)


def test_two_generations_can_have_two_files(tmp_path: Path) -> None:
    (tmp_path / "levels.yaml").write_text(GOOD)
    (tmp_path / "levels_next.yaml").write_text(GOOD.replace("generation: 2", "generation: 3"))
    pipelines, errors = load_pipelines(tmp_path)
    assert {stem: pipeline.generation for stem, pipeline in pipelines.items()} == {
        "levels": 2,
        "levels_next": 3,
    }
    assert errors == []


def test_an_empty_folder_has_no_pipelines(tmp_path: Path) -> None:
    assert load_pipelines(tmp_path) == ({}, [])


STAGE = "  - name: levels"
READER = GOOD.replace("pipeline: levels", "pipeline: reader").replace("isAvailable", "available")
LOOKUP = "lookup: [{table: levels/levels, on: [key], columns: [isAvailable]}]"


@pytest.mark.parametrize(
    ("windows", "refused"),
    [(["{tumbling: 1h}"], True), ([None], False), ([None, "{tumbling: 1h}"], False), ([], False)],
)
def test_lookup_unfit_for_every_generation_is_refused(
    tmp_path: Path, windows: list[str | None], refused: bool
) -> None:
    for generation, window in enumerate(windows, 2):
        windowed = f"{STAGE}\n    window: {window}" if window else STAGE
        text = GOOD.replace("generation: 2", f"generation: {generation}").replace(STAGE, windowed)
        (tmp_path / f"levels_{generation}.yaml").write_text(text)
    (tmp_path / "reader.yaml").write_text(READER.replace("lookup: []", LOOKUP))
    pipelines, errors = load_pipelines(tmp_path)
    assert len(pipelines) == len(windows) + (not refused)
    problems = [problem for error in errors for problem in error.problems]
    line = READER.splitlines().index("lookup: []") + 1
    assert [(problem.line, problem.field) for problem in problems] == [(line, "lookup.0.on")] * refused


@pytest.mark.parametrize(
    ("when_full", "refused"), [("emit_early", True), ("shut_down", True), ("spill", False)]
)
def test_lookup_of_a_bounded_buffer_is_refused(tmp_path: Path, when_full: str, refused: bool) -> None:
    """It has an entry for each partition that a key's records are in: which of them is the value?"""
    emit = f"{{on: time_limit, after: 1m, buffer: {{max_records: 5, when_full: {when_full}}}}}"
    change = "emit:\n      on: change\n      equal: exact"
    bounded = GOOD.replace(change, f"emit: {emit}")
    assert bounded != GOOD
    (tmp_path / "levels.yaml").write_text(bounded)
    (tmp_path / "reader.yaml").write_text(READER.replace("lookup: []", LOOKUP))
    pipelines, errors = load_pipelines(tmp_path)
    assert ("reader" not in pipelines) is refused
    assert [error.problems[0].field for error in errors] == ["lookup.0.on"] * refused
    if refused:
        assert "an entry for each partition" in errors[0].problems[0].message
        assert "`reduce: latest`" in errors[0].problems[0].fix


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("generation: 2", "generation: 2\nstart_date: 0001-01-01T00:00:00+05:00"),
        ("generation: 2", "generation: 2\nstart_date: 9999-12-31T23:59:59-05:00"),
    ],
)
def test_an_instant_out_of_range_is_a_mistake(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "a.yaml").write_text(GOOD.replace(old, new))
    (tmp_path / "b.yaml").write_text(GOOD)
    pipelines, (error,) = load_pipelines(tmp_path)
    assert list(pipelines) == ["b"]
    assert error.problems[0].field == "start_date"
    assert "years 1 to 9999" in error.problems[0].message


def test_a_check_that_fails_spares_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(written: object, _: object) -> None:
        if written == "2026-01-01":
            raise ZeroDivisionError("by zero")

    monkeypatch.setattr("tidegate.model.pipeline.read_start_date", fail)
    (tmp_path / "a.yaml").write_text(GOOD.replace("generation: 2", "generation: 2\nstart_date: 2026-01-01"))
    (tmp_path / "b.yaml").write_text(GOOD)
    pipelines, (error,) = load_pipelines(tmp_path)
    assert list(pipelines) == ["b"]
    assert "ZeroDivisionError: by zero" in error.problems[0].message
