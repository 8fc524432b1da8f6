"""What Spark says, as typed errors that name the cause."""

from __future__ import annotations

import pytest

from tidegate.engine.errors import translated
from tidegate.errors import BrokerUnavailable
from tidegate.spec import Pipeline, parse_pipeline

GONE = """\
An error occurred while calling o613.persist.
: java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
"""


@pytest.fixture
def pipeline() -> Pipeline:
    return parse_pipeline(
        "pipeline: p\nsource: {topics: [t], format: string}\n"
        "stages: [{name: s, emit: {on: update}}]\nsinks: [{kind: kafka, topic: out}]\n",
        "p.yaml",
    )


def test_a_broker_that_does_not_answer_spark_is_told_by_its_cause_not_by_the_call(pipeline: Pipeline) -> None:
    with pytest.raises(BrokerUnavailable, match=r"TimeoutException: Timed out") as told, translated(pipeline):
        raise RuntimeError(GONE)
    assert "o613" not in str(told.value)
