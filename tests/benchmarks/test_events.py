"""Loads: what their records are, before they are sent."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.events import Load, draw, timestamp_ms, value, wide_value
from benchmarks.peers import AVAILABILITY, BATCHES, RATE_LIMIT, SUMS, WINDOWS, Job
from benchmarks.place import write_pipeline

from tidegate.yaml.load import load_pipeline


def _products(load: Load) -> Counter[int]:
    return Counter(product for _, products, _ in draw(load) for product in products)


def test_every_second_event_is_about_a_busy_product() -> None:
    products = _products(Load(events=10_000, keys=1_000, busy=0.01))
    busy = sum(count for product, count in products.items() if product < 10)
    assert busy == pytest.approx(5_000 + 50, rel=0.05)
    assert len(products) > 900


def test_at_least_one_product_is_busy() -> None:
    ((product, count),) = _products(Load(events=10_000, keys=1_000, busy=0.0)).most_common(1)
    assert product == 0
    assert count >= 5_000


@pytest.mark.parametrize("event", [0, 1, 4_999_999])
def test_wide_values_have_their_bytes_and_columns(event: int) -> None:
    text = wide_value(12_345, 7, event, 1_000)
    assert len(text) == 1_000
    columns = json.loads(text)
    assert columns.pop("note")
    assert columns == json.loads(value(12_345, 7))


def test_wide_values_hardly_compress() -> None:
    texts = b"".join(wide_value(event % 7, 1, event, 1_000) for event in range(200))
    assert len(zlib.compress(texts)) > 0.7 * len(texts)


def test_load_has_equal_span_with_fewer_events() -> None:
    for events in (1_000, 50_000):
        load = Load(events=events, span_ms=3_600_000)
        span = load.timestamp_ms(events) - load.timestamp_ms(0)
        assert span == 3_600_000
    assert Load().timestamp_ms(17) == timestamp_ms(17)


def test_tenth_of_events_is_late_within_limit() -> None:
    load = Load(events=1_000, span_ms=10_000_000, late_ms=1_200_000)
    on_time = Load(events=1_000, span_ms=10_000_000)
    late = [on_time.timestamp_ms(event) - load.timestamp_ms(event) for event in range(1_000)]
    assert all(0 <= delay < 1_200_000 for delay in late)
    assert sum(delay > 0 for delay in late) == 99
    assert any(delay > 600_000 for delay in late)


@pytest.mark.parametrize(
    "job", [AVAILABILITY, BATCHES, RATE_LIMIT, SUMS, WINDOWS], ids=lambda job: job.pipeline
)
def test_job_has_a_pipeline_for_both_programs(job: Job, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    write_pipeline(tmp_path, 7, "from", "to", job.pipeline)
    pipeline = load_pipeline(tmp_path / "pipelines" / f"{job.pipeline}.yaml")
    assert (pipeline.generation, pipeline.schedule, pipeline.sources["source"].topics) == (7, None, ("from",))
    assert [sink.topic for sink in pipeline.sinks] == ["to"]
    programs = Path(__file__).parents[2] / "benchmarks" / "kafka_streams"
    assert (programs / f"{job.streams}.java").exists()
