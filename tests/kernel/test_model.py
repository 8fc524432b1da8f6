"""The model itself: against Kafka Streams, and by facts that were worked out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import kafka_streams
from tests.kernel.model import Batch, Buffered, BufferFull, Model, Record

TUMBLING = {"tumbling": "10ms", "grace": "5ms"}
SESSION = {"session": "10ms", "grace": "5ms"}
X = {"select": {"x": "x"}}
LATEST = {"reduce": "latest", **X}
COLLECT = {"reduce": "collect", **X}
SUM = {"reduce": {"n": "count(*)", "total": "sum(x)"}}


def cuttings(length: int) -> list[Iterable[int]]:
    """Whole, after every record, and in two at each place."""
    return [(), range(1, length), *((at,) for at in range(1, length))]


@pytest.mark.heavy
@pytest.mark.parametrize("path", kafka_streams.FILES, ids=kafka_streams.NAMES)
def test_model_equals_kafka_streams_however_cut(path: Path) -> None:
    case = kafka_streams.load(path)
    records, expected = kafka_streams.records_of(case), case["expect"]
    for cuts in cuttings(len(records)):
        model = Model(case["pipeline"]["stages"][0])
        if "error" in expected:
            with pytest.raises(BufferFull):
                run(model, *kafka_streams.cut(records, cuts))
            continue
        run(model, *kafka_streams.cut(records, cuts))
        assert kafka_streams.as_expected(model.emissions) == expected["emissions"]
        assert model.counts["late-record-drop"] == expected.get("late_dropped", 0)


def test_all_cases_of_kafka_streams_are_here() -> None:
    assert len(kafka_streams.FILES) == 36


class History:
    """Writes batches down: offsets count up per partition."""

    def __init__(self) -> None:
        self.offsets: Counter[int] = Counter()

    def __call__(self, *rows: tuple[Any, ...], partition: int = 0, clock: int | None = None) -> Batch:
        """Rows are (x or None, timestamp) of key k, or (key, x, timestamp); x "null" is a null column."""
        return Batch(tuple(self._record(*row, partition=partition) for row in rows), clock)

    def _record(self, *row: Any, partition: int) -> Record:
        key, x, timestamp = row if len(row) == 3 else ("k", *row)
        value = None if x is None else {"x": None if x == "null" else x}
        self.offsets[partition] += 1
        return Record(key, value, "in", partition, self.offsets[partition], timestamp)


@pytest.fixture
def batch() -> History:
    return History()


def run(model: Model, *batches: Batch) -> Model:
    for batch in batches:
        model.apply(batch)
    return model


def model_of(reduce: dict[str, Any], window: dict[str, str] | None = None, **emit: Any) -> Model:
    return Model({**reduce, "emit": emit, **({"window": window} if window else {})})


def out(model: Model) -> list[tuple[Any, ...]]:
    """(value, timestamp, window if any, reason, at) of all emissions."""
    return [
        (
            emission.value,
            emission.timestamp,
            *([emission.window] if emission.window else []),
            emission.reason,
            emission.at,
        )
        for emission in model.emissions
    ]


def x(number: float | None) -> dict[str, float | None]:
    return {"x": number}


# -- update and change ----------------------------------------------------------------------------------


def test_update_sends_every_value_and_one_deletion(batch: History) -> None:
    model = run(model_of(LATEST, on="update"), batch((1, 5), (1, 3), (None, 7), (None, 8)))
    assert out(model) == [(x(1), 5, "new", 5), (x(1), 3, "changed", 5), (None, 7, "deleted", 7)]
    assert model.counts["tombstones"] == 2


def test_change_skips_what_was_emitted_last(batch: History) -> None:
    model = run(model_of(LATEST, on="change"), batch((1, 1), (1, 2), (2, 3), ("null", 4), (None, 5)))
    assert [emission.value for emission in model.emissions] == [x(1), x(2), x(None), None]
    assert model.counts["idempotent-update-skip"] == 1


def test_a_skipped_record_leaves_no_position(batch: History) -> None:
    model = model_of(LATEST, on="change")
    first, second = batch((1, 1)), batch((1, 2))
    run(model, first, second, second)
    assert model.counts["idempotent-update-skip"] == 2
    assert model.counts["deduplicated"] == 0


def test_a_heartbeat_sends_an_unchanged_value(batch: History) -> None:
    model = run(model_of(LATEST, on="change", heartbeat="10ms"), batch((1, 0), (1, 9), (1, 10), (1, 19)))
    assert out(model) == [(x(1), 0, "new", 0), (x(1), 10, "heartbeat", 10)]


def test_a_tolerance_is_measured_from_what_was_emitted(batch: History) -> None:
    equal = {"within": {"x": 1}}
    model = run(model_of(LATEST, on="change", equal=equal), batch((10, 0), (11, 1), (12, 2), (13, 3)))
    assert [emission.value for emission in model.emissions] == [x(10), x(12)]


def test_a_percentage_is_of_the_old_value(batch: History) -> None:
    equal = {"within": {"x": "50%"}}
    model = run(model_of(LATEST, on="change", equal=equal), batch((-4, 0), (-6, 1), (-7, 2), (-3, 3)))
    assert [emission.value for emission in model.emissions] == [x(-4), x(-7), x(-3)]


def test_bytes_distinguish_minus_zero_and_exact_does_not(batch: History) -> None:
    records = batch((0.0, 0), (-0.0, 1), (0.0, 2))
    assert len(run(model_of(LATEST, on="change"), records).emissions) == 1
    assert len(run(model_of(LATEST, on="change", equal="bytes"), records).emissions) == 3


def test_bytes_with_timestamp_send_when_either_differs(batch: History) -> None:
    model = model_of(LATEST, on="change", equal="bytes", timestamp=True)
    run(model, batch((1, 0), (1, 0), (1, 3)))
    assert out(model) == [(x(1), 0, "new", 0), (x(1), 3, "changed", 3)]


def test_change_ignores_what_where_rejects(batch: History) -> None:
    stage = {**LATEST, "emit": {"on": "change"}, "where": "small"}
    model = Model(stage, conditions={"small": lambda row: row["x"] < 5})
    run(model, batch((1, 0), (9, 1), (1, 2), (None, 3)))
    assert [emission.value for emission in model.emissions] == [x(1), None]
    assert (model.counts["filtered"], model.counts["idempotent-update-skip"]) == (1, 1)


def test_update_hides_rejected_values_from_consumers(batch: History) -> None:
    stage = {**LATEST, "emit": {"on": "update"}, "where": "small"}
    model = Model(stage, conditions={"small": lambda row: row["x"] < 5})
    run(model, batch((9, 0), (None, 1), (1, 2)))
    assert out(model) == [(x(1), 2, "new", 2)]


# -- order, time, duplicates ----------------------------------------------------------------------------


def test_records_merge_by_offset_or_by_timestamp(batch: History) -> None:
    model = run(model_of(LATEST, on="update"), batch((1, 9), (2, 4)))
    assert [emission.value for emission in model.emissions] == [x(1), x(2)]
    both = Batch((*batch((3, 20)).records, *batch((4, 10), partition=1).records))
    assert [emission.value for emission in run(model, both).emissions[2:]] == [x(4), x(3)]


def test_record_overtaken_by_a_later_offset_is_kept(batch: History) -> None:
    model, elsewhere = model_of(SUM, on="update"), batch((1, 0), partition=1)
    run(model, Batch((*batch((2, 9), (4, 5)).records, *elsewhere.records)))
    assert [emission.value["total"] for emission in model.emissions if emission.value] == [1, 5, 7]
    assert model.counts["deduplicated"] == 0


def test_a_record_that_is_delivered_again_is_dropped(batch: History) -> None:
    model, once = model_of(SUM, on="update"), batch((1, 0), (2, 1))
    run(model, once, once, batch((3, 2)))
    assert [emission.value["total"] for emission in model.emissions if emission.value] == [1, 3, 6]
    assert model.counts["deduplicated"] == 2


def test_rows_of_one_record_count_as_one(batch: History) -> None:
    rows = Batch(tuple(Record("k", x(1), "in", 0, 5, 0, None, group) for group in range(3)))
    model = run(model_of(SUM, on="update"), rows, rows)
    assert [emission.value["n"] for emission in model.emissions if emission.value] == [1, 2, 3]
    assert model.counts["deduplicated"] == 3


def test_root_counts_first_hop_and_restarts_with_another() -> None:
    model = Model({**SUM, "emit": {"on": "update"}}, deduplicate="root")
    sources = ["up/0/5", "up/0/5;mid/0/9", "up/0/4", "up/0/6", "else/0/1", None]
    records = [Record("k", x(1), "in", 0, offset, 0, source) for offset, source in enumerate(sources)]
    run(model, Batch(tuple(records)))
    assert (model.counts["used"], model.counts["deduplicated"]) == (4, 2)


def test_aggregates_ignore_nulls_that_still_move_time(batch: History) -> None:
    model = model_of(SUM, on="time_limit", after="5ms", clock="stream")
    run(model, batch((1, 0), (None, 7)))
    assert out(model) == [({"n": 1, "total": 1}, 0, "time_limit", 5)]
    assert (model.counts["used"], model.counts["tombstones"]) == (2, 1)


def test_timer_fires_before_another_keys_record(batch: History) -> None:
    model = model_of(LATEST, on="time_limit", after="5ms", clock="stream")
    run(model, batch(("k", 1, 0), ("other", 0, 6), ("k", 2, 6), ("k", 3, 8)))
    assert [emission.value for emission in model.emissions if emission.key == "k"] == [x(1)]


def test_timer_fires_after_its_own_keys_record(batch: History) -> None:
    model = model_of(LATEST, on="time_limit", after="5ms", clock="stream")
    run(model, batch(("k", 1, 0), ("k", 2, 6)))
    assert out(model) == [(x(2), 6, "time_limit", 5)]


def test_clock_fires_last_and_makes_records_late(batch: History) -> None:
    model = model_of(SUM, TUMBLING, on="window_close")
    run(model, batch((1, 3), clock=40), batch((1, 5), (1, 25), (1, 26)), batch(clock=41))
    assert out(model) == [({"n": 1, "total": 1}, 3, (0, 10), "window_close", 15)]
    assert model.counts["late-record-drop"] == 3
    run(model, batch((1, 36)), batch(clock=45))
    assert out(model)[1:] == [({"n": 1, "total": 1}, 36, (30, 40), "window_close", 45)]


def test_stream_clock_ignores_the_batch_clock(batch: History) -> None:
    model = run(model_of(LATEST, on="time_limit", after="5ms", clock="stream"), batch((1, 0), clock=99))
    assert out(model) == []


# -- windows --------------------------------------------------------------------------------------------


def test_record_is_late_from_end_plus_grace(batch: History) -> None:
    model = run(model_of(SUM, TUMBLING, on="update"), batch((1, 14), (1, 9), (1, 15), (1, 9), (1, 12)))
    assert [emission.window for emission in model.emissions] == [(10, 20), (0, 10), (10, 20), (10, 20)]
    assert (model.counts["late-record-drop"], model.counts["expired-window-record-drop"]) == (1, 1)


def test_hopping_record_may_be_late_for_some_windows(batch: History) -> None:
    hopping = {"hopping": "10ms", "every": "5ms", "grace": "0ms"}
    model = run(model_of(SUM, hopping, on="update"), batch((1, 3), (1, 12), (1, 9)))
    assert [emission.window for emission in model.emissions] == [(0, 10), (5, 15), (10, 20), (5, 15)]
    assert (model.counts["late-record-drop"], model.counts["expired-window-record-drop"]) == (1, 0)


def test_merging_sessions_retracts_emissions_of_equal_windows(batch: History) -> None:
    model = run(model_of(SUM, SESSION, on="update"), batch((1, 0), (2, 12), (4, 8), (8, 10)))
    emitted = [
        (emission.value and emission.value["total"], emission.window, emission.reason)
        for emission in model.emissions
    ]
    assert emitted == [
        (1, (0, 0), "new"), (2, (12, 12), "new"),
        (None, (0, 0), "merged"), (None, (12, 12), "merged"), (7, (0, 12), "new"),
        (None, (0, 12), "merged"), (15, (0, 12), "new"),
    ]  # fmt: skip


def test_record_at_the_same_timestamp_updates_its_session(batch: History) -> None:
    model = run(model_of(SUM, SESSION, on="update"), batch((1, 4), (2, 4)))
    assert [(emission.reason, emission.window) for emission in model.emissions] == [
        ("new", (4, 4)),
        ("changed", (4, 4)),
    ]


def test_merged_sessions_fold_in_window_order(batch: History) -> None:
    reduce = {"reduce": {"all": "collect_list(x)", "first": "first(x)", "last": "last(x)"}}
    model = run(model_of(reduce, SESSION, on="update"), batch((2, 12), (1, 0), (3, 5)))
    assert model.emissions[-1].value == {"all": [1, 2, 3], "first": 1, "last": 3}


def test_collected_sessions_take_nothing_back(batch: History) -> None:
    model = run(model_of(COLLECT, SESSION, on="update"), batch((1, 0), (2, 5)))
    assert [emission.value for emission in model.emissions] == [{"events": [x(1)]}, {"events": [x(2)]}]


def test_session_ends_at_last_plus_gap_and_grace(
    batch: History,
) -> None:
    model = model_of(SUM, SESSION, on="update")
    run(model, batch((1, 0), ("other", 1, 15), (2, 0), ("other", 1, 16), (4, 0)))
    values = [emission.value for emission in model.emissions if emission.key == "k"]
    assert values == [{"n": 1, "total": 1}, {"n": 1, "total": 2}]
    assert model.counts["late-record-drop"] == 1


def test_final_session_is_not_emitted_again(batch: History) -> None:
    model = model_of(SUM, SESSION, on="window_close", clock="stream")
    run(model, batch((1, 0), ("other", 1, 15), (2, 0), ("other", 1, 16), (4, 0)))
    assert out(model)[:1] == [({"n": 1, "total": 1}, 0, (0, 0), "window_close", 15)]
    assert model.counts["late-record-drop"] == 2


def test_session_that_waits_for_emission_is_not_merged(batch: History) -> None:
    model = model_of(SUM, SESSION, on="time_limit", after="50ms", clock="stream")
    run(model, batch((1, 0), ("other", 0, 15), (2, 9), ("other", 0, 70)))
    assert [(emission.window, emission.at) for emission in model.emissions if emission.key == "k"] == [
        ((0, 0), 50),
        ((9, 9), 59),
    ]


def test_window_close_emits_once_and_never_a_null(batch: History) -> None:
    model = model_of(LATEST, TUMBLING, on="window_close", clock="stream")
    run(model, batch((1, 2), (2, 1), (3, 11), (None, 12), (4, 40)))
    assert out(model) == [(x(2), 2, (0, 10), "window_close", 15)]
    assert model.counts["intermediate-result-suppression"] == 2


def test_buffer_of_an_expired_window_is_still_emitted(batch: History) -> None:
    model = model_of(SUM, TUMBLING, on="time_limit", after="30ms", clock="stream")
    run(model, batch((1, 5), (2, 20), (3, 9), (4, 35)))
    assert out(model) == [({"n": 1, "total": 1}, 5, (0, 10), "time_limit", 35)]
    assert model.counts["late-record-drop"] == 1


def test_threshold_flushes_a_window_that_closes(batch: History) -> None:
    model = model_of(COLLECT, TUMBLING, on="threshold", count=2, clock="stream")
    run(model, batch((1, 1), (2, 2), (3, 3), (4, 15)))
    assert out(model) == [
        ({"events": [x(1), x(2)]}, 2, (0, 10), "count", 2),
        ({"events": [x(3)]}, 3, (0, 10), "window_close", 15),
    ]


# -- buffers --------------------------------------------------------------------------------------------


def test_time_limit_counts_from_the_first_buffered_value(batch: History) -> None:
    model = model_of(LATEST, on="time_limit", after="10ms", clock="stream")
    run(model, batch((1, 0), (2, 4), (3, 9), (4, 12), (5, 20), (6, 31)))
    assert out(model) == [(x(4), 12, "time_limit", 10), (x(6), 31, "time_limit", 30)]


def test_time_limit_uses_the_timestamp_of_the_value(batch: History) -> None:
    model = model_of(SUM, on="time_limit", after="10ms", clock="stream")
    run(model, batch((1, 0), (2, 12), (4, 3)))
    assert [emission.at for emission in model.emissions] == [10]
    run(model, batch((8, 21)))
    assert [emission.at for emission in model.emissions] == [10]
    run(model, batch((16, 22)))
    assert out(model)[1:] == [({"n": 5, "total": 31}, 22, "time_limit", 22)]


def test_timer_is_never_due_before_it_was_set(batch: History) -> None:
    model = model_of(LATEST, on="time_limit", after="10ms", clock="stream")
    run(model, batch(("other", 0, 50), ("k", 1, 3)))
    assert out(model) == [(x(1), 3, "time_limit", 50)]


def test_interval_goes_out_at_the_next_multiple(batch: History) -> None:
    model = model_of(SUM, on="interval", every="10ms", clock="stream")
    run(model, batch((1, 10), (2, 19), (4, 20), (8, 21), (16, 40)))
    assert [(emission.value and emission.value["total"], emission.at) for emission in model.emissions] == [
        (7, 20),
        (31, 30),
    ]


def test_buffered_null_is_emitted_only_after_a_value(batch: History) -> None:
    model = model_of(LATEST, on="time_limit", after="5ms", clock="stream")
    run(model, batch((1, 0), (None, 1), ("other", 0, 9), (3, 15), ("other", 0, 21)))
    run(model, batch((4, 30), (None, 31), ("other", 0, 40)))
    assert [emission[:4] for emission in out(model) if emission[0] != x(0)] == [
        (x(3), 15, "time_limit", 20),
        (None, 31, "time_limit", 35),
    ]


def test_threshold_flushes_by_count_and_first_event(batch: History) -> None:
    model = model_of(COLLECT, on="threshold", count=2, after="10ms", clock="stream")
    run(model, batch((1, 0), (2, 4), (3, 5), (4, 30)))
    assert out(model) == [
        ({"events": [x(1), x(2)]}, 4, "count", 4),
        ({"events": [x(3), x(4)]}, 30, "count", 30),
    ]
    run(model, batch((5, 31), ("other", 0, 50), (6, 50)))
    assert out(model)[2:] == [({"events": [x(5)]}, 31, "elapsed", 41)]
    assert model.buffered() == Buffered(2, 2)


def test_threshold_counts_from_the_last_flush_when_requested(batch: History) -> None:
    model = model_of(COLLECT, on="threshold", after="10ms", since="last_flush", clock="stream")
    run(model, batch((1, 5), ("other", 0, 16), (2, 17), ("other", 0, 24)))
    assert [emission.at for emission in model.emissions if emission.key == "k"] == [15]
    run(model, batch(("other", 0, 25), ("other", 0, 60), (3, 40)))
    assert [emission.at for emission in model.emissions if emission.key == "k"] == [15, 25, 60]


def test_threshold_flushes_by_bytes_of_the_records(batch: History) -> None:
    model = run(model_of(COLLECT, on="threshold", max_bytes=30), batch((1, 0), (2, 1), (3, 2)))
    assert out(model) == [({"events": [x(1), x(2)]}, 1, "bytes", 2)]
    full = run(model_of(COLLECT, on="threshold", max_bytes=28), History()((1, 3), (2, 4)))
    assert out(full) == [({"events": [x(1), x(2)]}, 4, "bytes", 4)]


def test_oversized_record_is_emitted_alone(batch: History) -> None:
    model = run(model_of(COLLECT, on="threshold", max_bytes=30), batch((1, 0), (10**20, 1), (2, 2)))
    assert out(model) == [({"events": [x(1)]}, 0, "bytes", 1), ({"events": [x(10**20)]}, 1, "bytes", 1)]


def test_a_flush_starts_aggregates_anew(batch: History) -> None:
    model = run(model_of(SUM, on="threshold", count=2), batch((1, 9), (2, 1), (4, 2), (8, 3)))
    assert out(model) == [({"n": 2, "total": 3}, 9, "count", 9), ({"n": 2, "total": 12}, 3, "count", 9)]


def test_where_clears_what_it_keeps_in(batch: History) -> None:
    stage = {**SUM, "emit": {"on": "threshold", "count": 2}, "where": "small"}
    model = Model(stage, conditions={"small": lambda row: row["total"] < 5})
    run(model, batch((4, 0), (4, 1), (1, 2), (1, 3)))
    assert [emission.value for emission in model.emissions] == [{"n": 2, "total": 2}]
    assert model.counts["filtered"] == 1


def test_emit_early_sends_the_oldest_of_the_partition(batch: History) -> None:
    buffer = {"max_records": 1, "when_full": "emit_early"}
    model = model_of(LATEST, on="time_limit", after="10ms", clock="stream", buffer=buffer)
    run(model, batch(("b", 1, 0), ("a", 2, 0)), batch(("b", 9, 1), partition=1), batch(("b", 4, 10)))
    assert [(emission.key, emission.value, emission.reason, emission.at) for emission in model.emissions] == [
        ("a", x(2), "emit_early", 0),
        ("b", x(4), "time_limit", 10),
    ]
    assert model.counts["buffer-evict"] == 1


def test_shut_down_raises_and_spill_does_not(batch: History) -> None:
    records = batch(("a", 1, 0), ("b", 1, 1))
    for when_full in ("shut_down", "spill"):
        buffer = {"max_bytes": 15, "when_full": when_full}
        model = model_of(LATEST, on="time_limit", after="10ms", buffer=buffer)
        if when_full == "shut_down":
            with pytest.raises(BufferFull):
                run(model, records)
        else:
            assert run(model, records).buffered() == Buffered(2, 2)


def test_drain_emits_buffers_but_no_open_window(batch: History) -> None:
    model = run(model_of(COLLECT, on="threshold", count=9), batch((1, 3), (2, 7)))
    model.drain()
    assert out(model) == [({"events": [x(1), x(2)]}, 7, "drained", 7)]
    final = run(model_of(SUM, TUMBLING, on="window_close"), batch((1, 3)))
    final.drain()
    assert final.emissions == []


# -- values ---------------------------------------------------------------------------------------------


def test_aggregates_skip_null_inputs(batch: History) -> None:
    names = ["count(*)", "count(x)", "sum(x)", "min(x)", "max(x)", "avg(x)", "first(x)", "last(x)"]
    collected = ["collect_list(x)", "collect_set(x)"]
    stage = {"reduce": {name: name for name in (*names, *collected)}}
    model = run(model_of(stage, on="update"), batch(("null", 0), (3, 1), (1, 2), (3, 3), ("null", 4)))
    assert list((model.emissions[0].value or {}).values()) == [1, 0, *[None] * 6, [], []]
    assert list((model.emissions[-1].value or {}).values()) == [
        5, 3, 7, 1, 3, 7 / 3, 3, 3, [3, 1, 3], [3, 1],
    ]  # fmt: skip
