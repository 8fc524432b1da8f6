"""What a page shows of streams: at a glance, in detail, with samples of what could not be used."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.seeded import Seeded, unusable
from tests.world import World
from tidegate import inspect, quarantine
from tidegate.app import App, stream_of
from tidegate.errors import BrokerUnavailable, QualityFailed, SettingsInvalid, SinkUnavailable
from tidegate.inspect import streams as catalog_module
from tidegate.inspect.overview import current_lags
from tidegate.inspect.streams import with_files
from tidegate.ledger import Head, Run, Stream
from tidegate.ledger.stream_condition import ConditionKind, read_facts
from tidegate.quarantine.page import MAX_CHARACTERS
from tidegate.settings import Settings
from tidegate_dev.processes import free_port

AVAILABILITY = Stream("availability", 1)


@pytest.fixture
def seeded(tmp_path: Path) -> Seeded:
    return Seeded(tmp_path)


def test_without_files_and_batches_there_is_nothing(seeded: Seeded) -> None:
    assert inspect.catalog_entries(seeded.app) == []
    assert inspect.overviews(seeded.app, [])[0] == []


def test_each_file_is_an_entry_with_its_stream(seeded: Seeded) -> None:
    seeded.add_sample("quiet_users", "users_v2", lambda text: text.replace("generation: 1", "generation: 2"))
    seeded.add_sample("availability")
    entries = inspect.catalog_entries(seeded.app)
    assert [(entry.name, entry.streams) for entry in entries] == [
        ("availability", (AVAILABILITY,)),
        ("users_v2", (Stream("quiet_users", 2),)),
    ]


def test_generation_without_file_joins_its_pipelines_files(seeded: Seeded) -> None:
    first = seeded.add_sample("availability")
    seeded.day(first, 1)
    seeded.add_sample("availability", edit=lambda text: text.replace("generation: 1", "generation: 2"))
    (entry,) = inspect.catalog_entries(seeded.app)
    assert entry.streams == (Stream("availability", 2), AVAILABILITY)


def test_pipeline_without_file_is_its_own_entry(seeded: Seeded) -> None:
    seeded.day(seeded.add_sample("availability"), 1)
    (seeded.home / "pipelines" / "availability.yaml").unlink()
    (entry,) = inspect.catalog_entries(seeded.app)
    assert (entry.name, entry.streams, entry.pipeline) == ("availability", (AVAILABILITY,), None)


def test_mistaken_file_keeps_its_stream_and_mistake(seeded: Seeded) -> None:
    seeded.day(seeded.add_sample("availability"), 1)
    path = seeded.home / "pipelines" / "availability.yaml"
    path.write_text(path.read_text().replace("reduce: latest", "reduce: lastest"))
    (entry,) = inspect.catalog_entries(seeded.app)
    assert (entry.streams, entry.pipeline) == ((AVAILABILITY,), None)
    assert "reduce" in entry.problems[0].field


def test_folder_is_reread_only_after_a_change(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded.add_sample("availability")
    reads: list[Path] = []
    load = catalog_module.load_pipelines

    def noted(folder: Path) -> Any:
        reads.append(folder)
        return load(folder)

    monkeypatch.setattr(catalog_module, "load_pipelines", noted)
    for _ in range(3):
        assert len(inspect.catalog_entries(seeded.app)) == 1
    assert len(reads) == 1
    seeded.add_sample("quiet_users")
    assert len(inspect.catalog_entries(seeded.app)) == 2
    assert len(reads) == 2


def test_overview_has_last_batch_but_no_lag(seeded: Seeded) -> None:
    seeded.day(seeded.add_sample("availability"), 3)
    never = Stream("never", 1)
    (first, second), lags = inspect.overviews(seeded.app, [never, AVAILABILITY])
    assert (first.status, first.last, first.lag) == (None, None, None)
    assert second.last is not None
    assert second.last.report is not None
    assert (second.last.seq, second.last.report.counts["read"]) == (3, 1000)
    assert second.last.report.suppressed == 1000 - second.last.report.counts["emitted"]
    assert (second.lag, second.condition.condition) == (None, ConditionKind.OK)
    assert isinstance(lags.error, SettingsInvalid)


def test_details_have_a_page_of_batches(seeded: Seeded) -> None:
    seeded.day(seeded.add_sample("availability"), 7)
    first = inspect.details(seeded.app, AVAILABILITY, limit=3)
    assert [entry.seq for entry in first.page] == [7, 6, 5]
    assert (first.has_more, len(first.recent)) == (True, 7)
    last = inspect.details(seeded.app, AVAILABILITY, before=3, limit=3)
    assert [entry.seq for entry in last.page] == [2, 1]
    assert (last.has_more, len(last.recent)) == (False, 7)
    assert first.metrics["availability"]["state-bytes"] == 24_000 + 300 * 7


def test_failed_batch_halts_its_stream_with_remedy(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    seeded.day(pipeline, 1)
    assert inspect.troubled_streams(seeded.app) == set()
    seeded.fail(pipeline, 2, "validate", QualityFailed("Too many nulls", "Correct the data."))
    condition = inspect.stream_condition(seeded.app, AVAILABILITY)
    assert condition.condition is ConditionKind.HALTED
    assert "QualityFailed: Too many nulls. Correct the data." in condition.causes[0].text
    assert inspect.troubled_streams(seeded.app) == {AVAILABILITY}


def test_a_failure_that_is_past_is_no_trouble(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    seeded.day(pipeline, 1)
    lease = seeded.lease(pipeline)
    lease.note_failure(1, "publish", SinkUnavailable("It was away", "Start it."))
    lease.release()
    assert inspect.troubled_streams(seeded.app) == set()


def test_idle_batch_and_clock_ahead_are_troubles(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    lease = seeded.lease(pipeline)
    lease.add_plan(seeded.plan(pipeline, 1))
    lease.release()
    assert inspect.stream_condition(seeded.app, AVAILABILITY).condition is ConditionKind.BEHIND
    assert inspect.troubled_streams(seeded.app) == {AVAILABILITY}
    ahead = seeded.add_sample("quiet_users")
    seeded.now = 4_000_000_000.0
    lease = seeded.lease(ahead)
    lease.add_run(Run("run-0", None, "nothing to read"), {("clicks", 0): 4_000_000_000_000})
    lease.release()
    assert inspect.stream_condition(seeded.app, stream_of(ahead)).condition is ConditionKind.CLOCK_AHEAD
    assert inspect.troubled_streams(seeded.app) == {AVAILABILITY, stream_of(ahead)}


def test_stream_file_is_one_of_the_facts(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    seeded.day(pipeline, 1)
    path = seeded.home / "pipelines" / "availability.yaml"
    text = path.read_text()
    path.write_text(text.replace("reduce: latest", "reduce: lastest"))
    condition = inspect.stream_condition(seeded.app, AVAILABILITY)
    assert (condition.condition, condition.causes[0].error) == (ConditionKind.HALTED, "PipelineInvalid")
    path.write_text(text.replace("generation: 1", "generation: 2"))
    assert inspect.stream_condition(seeded.app, AVAILABILITY).condition is ConditionKind.RETIRED


def test_samples_are_cut_whatever_bytes_they_are(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    rows = [unusable(7, b"\xff<script>" + b"x" * 1_000_000), unusable(8, b"{")]
    seeded.batch(pipeline, 1, {"used": 998}, rows)
    seeded.batch(pipeline, 2, {"used": 1000})
    recent = inspect.details(seeded.app, AVAILABILITY).recent
    (long, short), error = quarantine.samples_of(seeded.app, AVAILABILITY, recent)
    assert error is None
    assert long.value is not None
    assert long.value.startswith("\\xff<script>xxx")
    assert (len(long.value), long.value_size) == (MAX_CHARACTERS, 1_000_009)
    assert (short.seq, short.offset, short.value, short.key) == (1, 8, "{", "s1")


def test_no_more_samples_than_requested_are_read(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    for seq in (1, 2, 3):
        seeded.batch(pipeline, seq, {"used": 990}, [unusable(seq * 10 + n, b"{") for n in range(9)])
    recent = inspect.details(seeded.app, AVAILABILITY).recent
    samples, _ = quarantine.samples_of(seeded.app, AVAILABILITY, recent, limit=12)
    assert [sample.seq for sample in samples] == [3] * 9 + [2] * 3


def test_samples_of_a_missing_lake_give_a_reason(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    seeded.batch(pipeline, 1, {"used": 999}, [unusable(7, b"{")])
    for path in (seeded.home / "lake").rglob("*.parquet"):
        path.unlink()
    recent = inspect.details(seeded.app, AVAILABILITY).recent
    samples, error = quarantine.samples_of(seeded.app, AVAILABILITY, recent)
    assert samples == []
    assert error is not None
    assert "parquet" in error.what


def with_broker(seeded: Seeded, servers: str) -> App:
    settings = Settings.from_environment({**seeded.environment, "TIDEGATE_KAFKA": servers})
    return App(settings, seeded.app.ledger)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Somebody listens there and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("kind", ["refused", "silent"])
def test_broker_down_costs_seconds_and_the_lag(seeded: Seeded, silent_port: int, kind: str) -> None:
    seeded.day(seeded.add_sample("availability"), 1)
    port = silent_port if kind == "silent" else free_port()
    began = time.monotonic()
    (overview,), lags = inspect.overviews(with_broker(seeded, f"127.0.0.1:{port}"), [AVAILABILITY])
    assert time.monotonic() - began < 10
    assert isinstance(lags.error, BrokerUnavailable)
    assert (overview.lag, overview.last is not None) == (None, True)


def test_silent_clusters_cost_one_wait_together(seeded: Seeded, silent_port: int) -> None:
    login = {"security.protocol": "SSL", "bootstrap.servers": f"127.0.0.1:{silent_port}"}
    connections = {f"TIDEGATE_KAFKA_C{n}": json.dumps(login) for n in range(4)}
    settings = Settings.from_environment(connections)
    heads = [
        (Head(Stream("shop", n + 1), 1, offsets={("stock", 0): 3}, topic_ids={"stock": "id"}), f"c{n}")
        for n in range(4)
    ]
    began = time.monotonic()
    lags = current_lags(settings, heads, timedelta(seconds=0.3))
    assert time.monotonic() - began < 2  # a look at the TLS of one cluster takes longer
    assert "has not answered within 0.3 s" in str(lags.error)
    assert [lags.lag_of(head) for head, _ in heads] == [None] * 4


@pytest.mark.broker
@pytest.mark.spark
def test_lag_is_current_while_nothing_runs(world: World) -> None:
    world.stock(10, 5, 0)
    world.run()
    (before,), _ = inspect.overviews(world.app, [world.stream])
    assert before.lag == 0
    world.stock(1, 2, partition=1)
    (after,), lags = inspect.overviews(world.app, [world.stream])
    assert (after.lag, lags.error) == (2, None)
    assert after.status is not None
    assert lags.ends_of(after.status.head) == {(world.source, 0): 3, (world.source, 1): 2}


@pytest.mark.broker
@pytest.mark.spark
def test_lag_of_a_missing_topic_is_unknown(world: World) -> None:
    world.stock(10)
    world.run()
    head = world.app.ledger.head(world.stream)
    world.delete(world.source)
    lags = current_lags(world.app.settings, [(head, None)])
    assert (lags.lag_of(head), lags.error) == (None, None)


def test_edited_schedule_decides_what_is_behind(seeded: Seeded) -> None:
    pipeline = seeded.add_sample("availability")
    seeded.day(pipeline, 1)

    def gap() -> timedelta | None:
        (facts,) = with_files(seeded.app, read_facts(seeded.app.ledger, [stream_of(pipeline)]).values())
        return facts.schedule_gap

    assert gap() is None
    file = seeded.app.settings.pipelines / "availability.yaml"
    file.write_text(f'schedule: "@hourly"\n{file.read_text()}')
    assert gap() == timedelta(hours=1)
