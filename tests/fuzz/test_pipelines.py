"""A drawn pipeline gives the same, or fails typed, uncut, cut, and in the data plane."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from tests.fuzz.grammar import drawn_pipeline
from tests.fuzz.records import COMPUTED, RecordDrawing
from tests.fuzz.runs import differences, features, is_computable, model_of
from tests.fuzz.schemas import KINDS
from tidegate.kernel.strategies import STRATEGIES
from tidegate.model.pipeline import Pipeline
from tidegate.model.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = int(os.environ.get("TIDEGATE_TEST_SEED", "1")) * 1_000_000


Drawn = list[tuple[random.Random, Pipeline, str, Path]]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """Return accepted pipelines with their files, and the dice that draw their records."""
    accepted: Drawn = []
    for seed in range(60):
        dice, folder = random.Random(seed), tmp_path_factory.mktemp("drawn")
        if (pair := drawn_pipeline(dice, folder)) is not None:
            accepted.append((dice, *pair, folder))
    return accepted


@pytest.mark.long
def test_drawn_pipelines_cover_all_kinds_of_stages(drawn: Drawn) -> None:
    assert len(drawn) > 30
    stages = [stage for _, pipeline, _, _ in drawn for stage in pipeline.stages]
    assert {stage.emit.on for stage in stages} == {*STRATEGIES, "any", "join"}
    assert len({type(stage.window) for stage in stages}) >= 4
    assert {len(pipeline.stages) for _, pipeline, _, _ in drawn} >= {1, 2, 3}
    drawn_features = {feature for _, pipeline, _, _ in drawn for feature in features(pipeline)}
    assert drawn_features >= {
        *("several sources", "unions", "joins", "joins of several sources", "records in quarantine")
    }


def test_records_are_drawn_for_each_format() -> None:
    assert set(get_args(Source.model_fields["format"].annotation)) == COMPUTED


@pytest.mark.long
def test_schema_file_pipelines_of_each_kind_are_accepted(drawn: Drawn) -> None:
    sources = [source for _, pipeline, _, _ in drawn for source in pipeline.sources.values()]
    assert {source.format for source in sources if source.schema_file is not None} == {*KINDS}


@pytest.mark.long
def test_naive_model_covers_some_drawn_pipelines(drawn: Drawn) -> None:
    covered = 0
    for dice, pipeline, text, folder in drawn:
        if is_computable(pipeline):
            inputs = RecordDrawing(dice, pipeline, folder).inputs()
            covered += model_of(pipeline, text, inputs) is not None
    assert covered > 3


@pytest.mark.spark
@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + 6))
def test_drawn_pipeline_gives_one_result_everywhere(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    assert list(differences(spark, seed, tmp_path)) == []
