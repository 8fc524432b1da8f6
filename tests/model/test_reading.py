"""The rows that a pipeline's reading leaves to Spark."""

from __future__ import annotations

from tidegate.model.reading import Reading, StageReading


def test_dropped_repetitions_leave_a_quarter_of_rows() -> None:
    assert Reading().rows(4_000_000) == 4_000_000
    assert Reading({"levels": StageReading(compared=("isAvailable",))}).rows(4_000_000) == 1_000_000


def test_row_batches_leave_only_emissions_to_spark() -> None:
    stages = {"levels": StageReading(compared=("isAvailable",)), "sums": StageReading()}
    assert Reading(stages, in_batches=True).rows(4_000_000) == 0
    assert Reading(stages, in_batches=True, forwarded=("levels",)).rows(4_000_000) == 1_000_000
