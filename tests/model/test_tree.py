"""The input of a stage (`from`): the source, or a stage above it in the file."""

from __future__ import annotations

import pytest

from tests.model.files import COUNT, HOUR, LATEST, made, refused
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.reading import reading_of

NAMED = {"reduce": {"n": "count(*)", "name": "last(name)"}}
OF_SOURCE = {"from": "source"}


def test_stage_reads_the_one_before_by_default() -> None:
    pipeline = made(NAMED, {"select": {"m": "n"}}, {**OF_SOURCE, "select": {"p": "price"}})
    assert [stage.inputs for stage in pipeline.stages] == [("source",), ("s0",), ("source",)]
    assert pipeline.source_stages == (pipeline.stages[0], pipeline.stages[2])
    assert [stage.name for stage in pipeline.path_to(pipeline.stages[1])] == ["s0", "s1"]


def test_stage_sees_the_columns_of_its_input_only() -> None:
    assert made(NAMED, COUNT, {"from": "s0", "select": {"x": "name"}}).stages[2].emitted == ("x",)
    (mistake,) = refused(NAMED, COUNT, {"from": "s1", "select": {"x": "name"}})
    assert mistake[:2] == ("stages.2.select.x", "the column `name` does not exist")
    (mistake,) = refused({**COUNT, **HOUR}, COUNT, {**OF_SOURCE, "select": {"x": "window_end"}})
    assert mistake[1] == "the column `window_end` does not exist"


def test_branch_has_the_key_of_its_own_path() -> None:
    pipeline = made(NAMED, {"key": ["name"], **COUNT}, {"from": "s0", **NAMED}, {**OF_SOURCE, **LATEST})
    assert [pipeline.key_of(stage) for stage in pipeline.stages] == [("id",), ("name",), ("id",), ("id",)]
    assert [pipeline.takes_deletions(stage) for stage in pipeline.stages] == [True, False, True, True]


def test_further_source_stage_can_have_a_key() -> None:
    pipeline = made(COUNT, {**OF_SOURCE, "key": ["name"], **COUNT})
    assert pipeline.key_of(pipeline.stages[1]) == ("name",)
    assert not pipeline.takes_deletions(pipeline.stages[1])
    assert reading_of(pipeline).described == (
        "Spark computes the first stage's columns: `s1` has a key of its own."
    )


@pytest.mark.parametrize(
    ("stage", "field", "message", "fix"),
    [
        ({"from": "sourc"}, "from", "there is no stage `sourc` above this one", "Did you mean `source`?"),
        (
            {"from": "s2"},
            *("from", "there is no stage `s2` above this one"),
            "Write `source`, `s0`. A stage reads the source or a stage above it in the file.",
        ),
        (
            {"from": "s1"},
            *("from", "a stage cannot read its own emissions", "Name a stage above it, or `source`."),
        ),
        (
            {"name": "source"},
            *("name", "`source` is no name for a stage: in `from` it means the source"),
            "Use another name, such as `source_stage`.",
        ),
        (
            {**OF_SOURCE, "key": ["id"]},
            *("key", "these columns are the source's key", "Leave `key` out: the stage has it anyway."),
        ),
        (
            {**OF_SOURCE, "key": ["nam"]},
            *("key.0", "the column `nam` does not exist", "Did you mean `name`?"),
        ),
    ],
)
def test_impossible_inputs_are_refused(stage: dict[str, object], field: str, message: str, fix: str) -> None:
    assert refused({}, {**COUNT, **stage}, COUNT) == [(f"stages.1.{field}", message, fix)]


@pytest.mark.parametrize(
    "source", [{"deduplicate": {"columns": ["name"], "keep": "1h"}}, {"sequence": {"columns": ["at"]}}]
)
def test_filters_of_the_source_exclude_another_key(source: dict[str, object]) -> None:
    ((field, message, _),) = refused(LATEST, {**OF_SOURCE, "key": ["name"], **COUNT}, source=source)
    assert (field, message) == (
        "stages.1.key",
        f"behind `{next(iter(source))}`, a stage that reads the source has the source's key",
    )
    assert not refused(LATEST, {**OF_SOURCE, **COUNT}, source=source)


def test_unknown_input_causes_no_further_mistakes() -> None:
    mistakes = refused({}, {"from": "nothing", "key": ["n"], "select": {"x": "y"}})
    assert [field for field, *_ in mistakes] == ["stages.1.from"]


def test_each_stage_of_the_source_drops_repeated_positions() -> None:
    pipeline = made(LATEST, COUNT, {**OF_SOURCE, **COUNT})
    stages = [kernel_stage(pipeline, stage).deduplicate for stage in pipeline.stages]
    assert stages == ["offset", "none", "offset"]


def test_reading_names_the_stages_that_drop_repeated_values() -> None:
    change = {"select": {"name": "name"}, "emit": {"on": "change"}}
    reading = reading_of(made(change, {**OF_SOURCE, "reduce": {"n": "count(name)"}}))
    assert reading.drops == ("s0",)
    assert reading.described == (
        "The tasks that read records compute the columns of `s0`, `s1`, and drop repeated values for `s0`."
    )
