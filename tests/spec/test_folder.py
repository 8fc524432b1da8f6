"""A folder of pipeline files."""

from __future__ import annotations

from pathlib import Path

from tests.spec.files import GOOD
from tidegate.spec import load_pipelines


def test_the_pipelines_of_a_folder_come_by_file_name(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(GOOD.replace("pipeline: levels", "pipeline: first"))
    (tmp_path / "a.yaml").write_text(GOOD.replace("pipeline: levels", "pipeline: second"))
    (tmp_path / "README.md").write_text("not a pipeline")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "c.yaml").write_text("not a pipeline either")
    pipelines, errors = load_pipelines(tmp_path)
    assert {stem: each.pipeline for stem, each in pipelines.items()} == {"a": "second", "b": "first"}
    assert errors == []


def test_one_bad_file_does_not_keep_the_others_back(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("pipeline: [")
    (tmp_path / "b.yaml").write_text(GOOD)
    pipelines, errors = load_pipelines(tmp_path)
    assert list(pipelines) == ["b"]
    assert [error.problems[0].file for error in errors] == [str(tmp_path / "a.yaml")]


def test_of_two_files_with_one_name_and_generation_none_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# the same\n" + GOOD)
    (tmp_path / "b.yaml").write_text(GOOD)
    pipelines, errors = load_pipelines(tmp_path)
    assert pipelines == {}
    assert [(error.problems[0].line, error.problems[0].field) for error in errors] == [
        (2, "pipeline"),
        (1, "pipeline"),
    ]
    assert str(tmp_path / "b.yaml") in errors[0].problems[0].message


def test_two_generations_stand_side_by_side_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "levels.yaml").write_text(GOOD)
    (tmp_path / "levels_next.yaml").write_text(GOOD.replace("generation: 2", "generation: 3"))
    pipelines, errors = load_pipelines(tmp_path)
    assert {stem: each.generation for stem, each in pipelines.items()} == {"levels": 2, "levels_next": 3}
    assert errors == []


def test_an_empty_folder_has_no_pipelines(tmp_path: Path) -> None:
    assert load_pipelines(tmp_path) == ({}, [])
