"""What can read a source that keeps records without a key."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.errors import PipelineInvalid
from tidegate.model.pipeline import Pipeline
from tidegate.yaml.load import parse_case_pipeline

SOURCE = {
    "topics": ["in"],
    "format": "json",
    "columns": "id bigint, n int",
    "key": ["id"],
    "null_key": "keep",
}
UPDATE = {"on": "update"}


def made(*stages: dict[str, Any], **fields: Any) -> Pipeline:
    """A pipeline of stages, the first of which reads SOURCE, with other fields of the source and the file."""
    document = {
        "pipeline": "p",
        "source": SOURCE | fields.pop("source", {}),
        "stages": [
            {"name": f"s{number}", "emit": UPDATE, **stage} for number, stage in enumerate(stages or ({},))
        ],
        "sinks": [{"kind": "kafka", "topic": "out", "key_format": "kafka"}],
    }
    return parse_case_pipeline(document | fields, "p.yaml")


def refusal(*stages: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(PipelineInvalid) as error:
        made(*stages, **fields)
    (problem,) = error.value.problems
    return problem.message


def test_stage_of_updates_may_lack_keys() -> None:
    pipeline = made()
    assert pipeline.may_lack_keys(pipeline.stages[0])
    quarantining = made(source={"null_key": "quarantine"})
    assert not quarantining.may_lack_keys(quarantining.stages[0])


def test_empty_key_means_that_no_record_has_one() -> None:
    pipeline = made(source={"key": [], "null_key": "quarantine"}, sinks=[{"kind": "kafka", "topic": "out"}])
    assert pipeline.single_source is not None
    assert pipeline.single_source.key == ()
    assert pipeline.may_lack_keys(pipeline.stages[0])


def test_stage_with_its_own_key_lacks_none() -> None:
    pipeline = made({}, {"from": "source", "key": ["n"], "reduce": {"c": "count(*)"}})
    assert [pipeline.may_lack_keys(stage) for stage in pipeline.stages] == [True, False]


@pytest.mark.parametrize(
    ("stage", "field"),
    [
        ({"reduce": {"c": "count(*)"}}, "`reduce`"),
        ({"emit": {"on": "change"}}, "`emit: {on: change}`"),
        ({"where": "n > 1"}, "`where`"),
        ({"ttl": "1d"}, "`ttl`"),
        ({"window": {"tumbling": "1h"}}, "`window`"),
        ({"unchanged": "nulls", "select": {"n": "n"}}, "`unchanged`"),
    ],
)
def test_stage_that_compares_records_is_refused(stage: dict[str, Any], field: str) -> None:
    assert f"not the record of one thing: {field}" in refusal(stage)


def test_stage_after_it_is_refused() -> None:
    assert "`s1` would get emissions without a key from `s0`" in refusal({}, {})


def test_sink_that_needs_keys_is_refused() -> None:
    assert "has no place for emissions without a key" in refusal(sinks=[{"kind": "table", "path": "out/p"}])


def test_quarantine_of_values_is_refused() -> None:
    quality = {"suite": "p", "on_failure": "quarantine"}
    assert refusal(quality=quality) == "a value without a key cannot be refused"


def test_sequence_of_changes_is_refused() -> None:
    assert "which `sequence` could order" in refusal(source={"sequence": {"columns": ["n"]}})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"format": "csv"}, "`coerce` does not go with `format: csv`"),
        ({"registry": {}}, "records that satisfy a schema are not converted"),
    ],
)
def test_coercion_is_for_plain_json(source: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineInvalid) as error:
        made(source=source | {"coerce": True})
    assert message in str(error.value)
