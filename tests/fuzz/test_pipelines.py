"""A drawn pipeline gives the same, or fails typed, uncut, cut, and in the data plane."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from tests.fuzz.grammar import drawn_pipeline
from tests.fuzz.records import COMPUTED, RecordDrawing
from tests.fuzz.runs import differences, model_of
from tests.fuzz.schemas import KINDS
from tidegate.model.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = int(os.environ.get("TIDEGATE_TEST_SEED", "1")) * 1_000_000


@pytest.mark.heavy
def test_drawn_pipelines_cover_all_kinds_of_stages(tmp_path: Path) -> None:
    drawn = [drawn_pipeline(random.Random(seed), tmp_path) for seed in range(60)]
    accepted = [pipeline for pipeline, _ in filter(None, drawn)]
    assert len(accepted) > 30
    stages = [stage for pipeline in accepted for stage in pipeline.stages]
    assert {stage.emit.on for stage in stages} == {
        *("update", "change", "window_close", "time_limit", "threshold", "interval", "quiet", "any")
    }
    assert len({type(stage.window) for stage in stages}) >= 4
    assert {len(pipeline.stages) for pipeline in accepted} >= {1, 2, 3}


def test_records_are_drawn_for_each_format() -> None:
    assert set(get_args(Source.model_fields["format"].annotation)) == COMPUTED


@pytest.mark.heavy
def test_schema_file_pipelines_of_each_kind_are_accepted(tmp_path: Path) -> None:
    drawn = [drawn_pipeline(random.Random(seed), tmp_path) for seed in range(60)]
    sources = [pipeline.sources["source"] for pipeline, _ in filter(None, drawn)]
    assert {source.format for source in sources if source.schema_file is not None} == {*KINDS}


@pytest.mark.heavy
def test_naive_model_covers_some_drawn_pipelines(tmp_path: Path) -> None:
    covered = 0
    for seed in range(40):
        dice = random.Random(seed)
        drawn = drawn_pipeline(dice, tmp_path)
        if (
            drawn is not None
            and drawn[0].sources["source"].format in COMPUTED
            and not drawn[0].sources.registries
        ):
            inputs = RecordDrawing(dice, drawn[0], tmp_path).inputs()
            covered += model_of(*drawn, inputs) is not None
    assert covered > 3


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(FIRST, FIRST + 6))
def test_drawn_pipeline_gives_one_result_everywhere(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    assert list(differences(spark, seed, tmp_path)) == []
