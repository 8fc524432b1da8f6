"""The JSON Schema of the grammar: it takes what the grammar takes, and refuses what editors underline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import yaml
from tests.model.files import GOOD, everything, several_sources
from tests.model.test_airflow import AIRFLOW
from tidegate.yaml.grammar import EXAMPLES
from tidegate.yaml.json_schema import file_schema
from tidegate.yaml.tree import read

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = ROOT / "include" / "pipelines"
PAGE = (ROOT / "docs" / "pipeline-file.md").read_text()
SCHEMA = file_schema("pipeline")
VALIDATOR = Draft202012Validator(SCHEMA)


def complaints(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(read(text, "p.yaml").data)]


def test_it_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator.check_schema(file_schema("defaults"))


@pytest.mark.parametrize("path", sorted(PIPELINES.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_takes_each_sample_which_names_it(path: Path) -> None:
    text = path.read_text()
    assert complaints(text) == []
    first, *_ = text.splitlines()
    assert first == "# yaml-language-server: $schema=pipeline.schema.json"


def test_committed_json_schema_equals_the_command_output() -> None:
    stored = json.loads((PIPELINES / "pipeline.schema.json").read_text())
    assert stored == SCHEMA, "write it anew: tidegate schema > include/pipelines/pipeline.schema.json"


def test_json_schema_accepts_the_page_and_full_pipeline() -> None:
    text = PAGE.split("```yaml\npipeline: ", 1)[1].split("```", 1)[0]
    assert complaints(f"pipeline: {text}") == []
    assert complaints(GOOD + AIRFLOW) == []
    for data in (everything(), several_sources()):
        assert [error.message for error in VALIDATOR.iter_errors(data)] == []


def test_json_schema_accepts_numbers_with_underscores() -> None:
    """Their YAML is 1.2: `5_000_000` is a text there."""
    data = {**read(GOOD, "p.yaml").data}
    data["source"] = {**data["source"], "max_records": yaml.safe_load('"5_000_000"')}
    assert list(VALIDATOR.iter_errors(data)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("generation: 2", "generation: 0"),
        ("format: json", "format: jsn"),
        ("pipeline: levels", "pipelines: levels"),
        ("on: change", "on: chnge"),
        ("kind: table", "kind: tabel"),
        ("max_records: 5_000_000", "max_records: many"),
        ("on_failure: stop", "on_failure: stop\nairflow: {retires: 5}"),
        ("equal: exact", "heartbeat: 1 hour"),
        ("with_key: true", "with_key: yes please"),
    ],
)
def test_it_refuses_what_an_editor_should_underline(before: str, after: str) -> None:
    assert GOOD.count(before) == 1
    assert complaints(GOOD.replace(before, after))


def test_json_schema_describes_each_field() -> None:
    written: set[str] = set()

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            for field in part.get("properties", {}).values():
                written.add(field.get("description", ""))
            part = list(part.values())
        if isinstance(part, list):
            for item in part:
                collect(item)

    collect(SCHEMA)
    fields = {example for path, example in EXAMPLES.items() if not path.endswith("*")}
    meanings, examples = zip(*(text.split(" Such as ", 1) for text in written), strict=True)
    assert {f"`{example}`." for example in fields} <= set(examples)
    assert [text for text in meanings if not text.endswith(".")] == []
