"""Checkpoints of Great Expectations as files: what of them tidegate takes, and how it refuses the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.model.files import COUNT, edited, made, problems, refused
from tests.model.test_compiled import assert_same
from tidegate.errors import SettingsInvalid
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import with_checkpoints, with_suites
from tidegate.model.quality import QualityCheck

SINKS = {"sinks": [{"kind": "kafka", "topic": "out", "stage": "s0"}, {"kind": "table"}]}
DOCS = {"name": "docs", "type": "update_data_docs", "site_names": []}
SLACK = {"name": "alert", "type": "slack", "slack_webhook": "${HOOK}"}


def named(name: str) -> dict[str, str]:
    return {"name": name, "id": "7d0f0b2e"}


def definition(asset: str = "s1", target: str = "values", suite: str = "a", **fields: Any) -> dict[str, Any]:
    source = fields.pop("source", "p")
    data = {"datasource": named(source), "asset": named(asset), "batch_definition": named(target)}
    return {"name": f"{suite} of {asset}", "id": "1", "suite": named(suite), "data": data, **fields}


def write(folder: Path, checkpoint: dict[str, Any], *definitions: dict[str, Any]) -> Path:
    """Write the files as the API of Great Expectations lays them out. Returns the folder of the suites."""
    named_in = [named(written["name"]) for written in definitions]
    content = {"name": "c", "id": "2", "validation_definitions": named_in, "actions": [], **checkpoint}
    for kind, files in (("checkpoints", [content]), ("validation_definitions", definitions)):
        (folder / kind).mkdir()
        for file in files:
            (folder / kind / f"{file['name']}.json").write_text(json.dumps(file))
    return folder / "expectations"


def pipeline(*checks: Any) -> Pipeline:
    return made({}, COUNT, quality=[*checks] or {"checkpoint": "c"}, **SINKS)


def test_validation_definitions_become_checks(tmp_path: Path) -> None:
    definitions = [definition(), definition("s0", "state", "b"), definition("kafka:out", "emissions")]
    folder = write(tmp_path, {"actions": [DOCS], "result_format": "SUMMARY"}, *definitions)
    written = pipeline({"suite": "x"}, {"checkpoint": "c", "on_failure": "warn"})
    assert [check.suite for check in written.checks] == ["x"]
    assert with_checkpoints(written, folder).checks == (
        QualityCheck(suite="x"),
        QualityCheck(suite="a", stage="s1", on_failure="warn"),
        QualityCheck(suite="b", stage="s0", of="state", on_failure="warn"),
        QualityCheck(suite="a", sink="kafka:out", of="emissions", on_failure="warn"),
    )


def test_plan_keeps_its_checks_without_their_files(tmp_path: Path) -> None:
    folder = write(tmp_path, {}, definition("s0"))
    planned = with_suites(with_checkpoints(pipeline(), folder), {"a": '{"name": "a"}'}.get)
    assert_same(planned)
    assert planned.published_stages == ("s0", "s1")
    assert [check.suite_text for check in planned.checks] == ['{"name": "a"}']


def test_other_suites_are_pinned_beside_an_unread_checkpoint() -> None:
    written = pipeline({"checkpoint": "c"}, {"suite": "x"})
    pinned = with_suites(written, {"x": "{}"}.get)
    assert pinned.quality[0] == written.quality[0]
    assert [check.suite_text for check in pinned.checks] == ["{}"]


@pytest.mark.parametrize(
    ("changed", "checkpoint", "message"),
    [
        ({}, {"actions": [SLACK]}, "does not run its action `slack`.*on_quality"),
        ({}, {"actions": [DOCS | {"site_names": ["local"]}]}, "names sites.*TIDEGATE_DATA_DOCS"),
        ({}, {"result_format": "COMPLETE"}, "`result_format` is COMPLETE.*at most 20 failing rows"),
        ({}, {"result_format": {"partial_unexpected_count": 0}}, "SUMMARY with `partial_unexpected_count`"),
        ({}, {"validation_definitions": []}, "no `validation_definitions`"),
        ({}, {"validation_definitions": [named("../a")]}, "'../a' is no name of a file"),
        ({}, {"validation_definitions": [named("b of s1")]}, "does not exist.*`a of s1`"),
        ({}, {"action_list": []}, "does not know its field `action_list`"),
        ({"source": "orders"}, {}, "its data source is `orders`.*`p`"),
        ({"asset": "s2"}, {}, "`s2` is no stage or sink of `p`"),
        ({"target": "rows"}, {}, "`rows` is not known.*`values`"),
        ({"asset": "table", "target": "state"}, {}, "a sink has no state"),
        ({"suite": "../a"}, {}, "is not a suite's name"),
        ({"data": None}, {}, "it has no `data`"),
        ({"data": {"datasource": named("p")}}, {}, "`asset` has no `name`"),
    ],
)
def test_unsupported_checkpoint_is_refused_with_a_remedy(
    tmp_path: Path, changed: dict[str, Any], checkpoint: dict[str, Any], message: str
) -> None:
    written = definition(**changed) | {"name": "a of s1"}
    folder = write(tmp_path, checkpoint, written)
    with pytest.raises(SettingsInvalid, match=rf"(validation_definitions|checkpoints)/.*\.json.*{message}"):
        with_checkpoints(pipeline(), folder)


def test_missing_checkpoint_suggests_similar_names(tmp_path: Path) -> None:
    folder = write(tmp_path, {"name": "orders"}, definition())
    with pytest.raises(SettingsInvalid, match=r"checkpoints/order\.json does not exist.*`orders`"):
        with_checkpoints(pipeline({"checkpoint": "order"}), folder)


def test_checkpoint_suite_cannot_repeat_the_pipeline_file(tmp_path: Path) -> None:
    folder = write(tmp_path, {}, definition())
    with pytest.raises(SettingsInvalid, match="suite a is evaluated twice on the same"):
        with_checkpoints(pipeline({"checkpoint": "c"}, {"suite": "a", "stage": "s1"}), folder)


@pytest.mark.parametrize(
    ("check", "field", "message"),
    [
        ({"suite": "a"}, "suite", "`suite` does not go with `checkpoint: c`"),
        ({"stage": "s0"}, "stage", "`stage` does not go with `checkpoint: c`"),
        ({"on_failure": "quarantine"}, "on_failure", "'quarantine' is not known"),
        ({"checkpoint": "../c"}, "checkpoint", "is not a suite's name"),
    ],
)
def test_it_says_itself_what_it_looks_at(check: dict[str, Any], field: str, message: str) -> None:
    for quality, at in (({"checkpoint": "c", **check}, ""), ([{"checkpoint": "c", **check}], "0.")):
        (mistake,) = refused({}, COUNT, quality=quality, **SINKS)
        assert (mistake[0], message in mistake[1]) == (f"quality.{at}{field}", True), mistake
        assert mistake[2]


def test_a_mistake_has_the_line_of_its_field() -> None:
    text = edited(("quality:\n  suite: availability\n", "quality:\n  checkpoint: c\n  stage: levels\n"))
    (mistake,) = problems(text)
    assert mistake[:2] == (34, "quality.stage")
