"""Records that are given in place of Kafka's."""

from __future__ import annotations

from tests.model.files import made
from tidegate.spark.case_parts import CaseInput
from tidegate.yaml.cases import CaseRecord, Tick

SOURCES = made({"emit": {"on": "update"}}).sources


def reasons(*inputs: CaseRecord | Tick) -> list[str | None]:
    return CaseInput(inputs).decoded(SOURCES, "source", False).column("__reason").to_pylist()


def record(timestamp: int) -> CaseRecord:
    return CaseRecord("a", None, timestamp, "t")


def test_future_without_a_clock_has_an_end() -> None:
    assert reasons(record(5), record(2**62), record(2**63 - 1)) == [None, None, "future_timestamp"]


def test_future_begins_a_day_after_the_clock() -> None:
    day_ms = 86_400_000
    assert reasons(record(day_ms + 5), record(day_ms + 6), Tick(5)) == [None, "future_timestamp"]
