"""What a scheduler can still be told of a pipeline file that has mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.files import GOOD, edited
from tidegate.errors import PipelineInvalid
from tidegate.yaml.load import (
    legible_scheduling,
    load_pipeline_of_folder,
    load_pipelines,
    stream_in_broken_file,
)

EVERY_FIVE, HOURLY = "*/5 * * * *", "0 * * * *"
BEFORE = edited((f'"{EVERY_FIVE}"', f'"{HOURLY}"'))


@pytest.mark.parametrize(
    "edit",
    [("reduce: latest", "reduce: lastest"), ("lookup: []", "lookup: ["), ("topics: [stock]", "\ttopics: x")],
    ids=["a mistake", "no YAML from there on", "no YAML at all"],
)
def test_mistake_elsewhere_keeps_stream_and_schedule(edit: tuple[str, str]) -> None:
    scheduling = legible_scheduling(edited(edit), BEFORE)
    assert scheduling is not None
    assert (scheduling.pipeline, scheduling.generation, scheduling.schedule) == ("levels", 2, EVERY_FIVE)


@pytest.mark.parametrize("schedule", ['"*/5 * * *"', '"*/5 * * * *', "[", "5"])
def test_mistaken_schedule_falls_back_to_last_good(schedule: str) -> None:
    text = edited((f'"{EVERY_FIVE}"', schedule))
    with_before, without = legible_scheduling(text, BEFORE), legible_scheduling(text)
    assert with_before is not None
    assert without is not None
    assert (with_before.schedule, without.schedule) == (HOURLY, None)


def test_a_schedule_that_was_taken_out_is_none() -> None:
    scheduling = legible_scheduling(edited((f'schedule: "{EVERY_FIVE}"\n', "")) + "typo: 1\n", BEFORE)
    assert scheduling is not None
    assert scheduling.schedule is None


@pytest.mark.parametrize(
    "text", ["", "stages: [", "- a list", GOOD.replace("pipeline: levels", "pipeline: L E")]
)
def test_text_without_pipeline_falls_back_to_last_good(text: str) -> None:
    scheduling = legible_scheduling(text, BEFORE)
    assert scheduling is not None
    assert scheduling.pipeline == "levels"
    assert legible_scheduling(text) is None


@pytest.mark.parametrize(
    ("written", "stream"),
    [
        ("pipeline: a\n", ("a", 1)),
        ("pipeline: 'a' # its name\ngeneration: 1_0\nstages: [\n", ("a", 10)),
        ("pipeline: a\ngeneration: two\n", ("a", None)),
        ("generation: 2\n", None),
    ],
)
def test_broken_file_yields_its_stream_if_possible(
    written: str, stream: tuple[str, int | None] | None, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(written)
    assert stream_in_broken_file(str(tmp_path / "p.yaml")) == stream


def test_single_file_fails_for_mistakes_of_its_folder(tmp_path: Path) -> None:
    lookup = "lookup: [{table: levels/levels, on: [key], columns: [isAvailable]}]"
    stage = "  - name: levels"
    windowed = edited((stage, f"{stage}\n    window: {{tumbling: 1h}}"), ("generation: 2", "generation: 3"))
    reader = edited(("pipeline: levels", "pipeline: reader"), ("lookup: []", lookup)).replace(
        "isAvailable", "available"
    )
    neighbour = GOOD.replace("pipeline: levels", "pipeline: other")
    texts = {
        "a": neighbour,
        "b": "# again\n" + neighbour,
        "windowed": windowed,
        "reader": reader,
        "broken": "pipeline: [",
    }
    for name, text in (texts | {"broken": "pipeline: ["}).items():
        (tmp_path / f"{name}.yaml").write_text(text)
    pipelines, errors = load_pipelines(tmp_path)
    assert set(pipelines) == {"windowed"}
    for error in errors:
        with pytest.raises(PipelineInvalid) as alone:
            load_pipeline_of_folder(Path(error.problems[0].file))
        assert alone.value.problems == error.problems
    assert load_pipeline_of_folder(tmp_path / "windowed.yaml") == pipelines["windowed"]
