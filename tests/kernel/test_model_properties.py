"""What must hold of the model, whatever the stage and the history."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.model import Batch, BufferFull, Emission, Model, Record
from tests.kernel.model.records import Value
from tests.kernel.model.strategies import HEARTBEATS, WINDOWS, Case, cases, cut, histories, logs
from tests.kernel.model.values import equivalent, same, selected

# At the very instant at which a session expires, a record alone in its session is not late: there alone the
# same session can come twice. All other windows come once.
ALIGNED = [window for window in WINDOWS if not window or "session" not in window]
TUMBLING = [None, {"tumbling": "10ms", "grace": "5ms"}]
PLAIN: dict[str, Any] = {"deduplicates": ["offset"], "filtered": False}
COUNTED: dict[str, Any] = {"name": "out", "reduce": {"n": "count(*)"}}


def outcome(model: Model, batches: Iterable[Batch]) -> Any:
    """Everything that a history gives, key by key; `full` when a buffer was."""
    try:
        for batch in batches:
            model.apply(batch)
    except BufferFull:
        return "full"
    by_key = sorted(model.emissions, key=lambda emission: emission.key)
    return repr((by_key, sorted(+model.counts), model.buffered()))


def per_window(emissions: Iterable[Emission]) -> list[list[Emission]]:
    emissions_by_window: dict[Any, list[Emission]] = defaultdict(list)
    for emission in emissions:
        emissions_by_window[emission.key, emission.window].append(emission)
    return list(emissions_by_window.values())


def shares_keys(batches: Iterable[Batch]) -> bool:
    """Return whether a key has records in several partitions."""
    partitions = {(record.key, record.home) for record in total(batches)}
    return len(partitions) > len({key for key, _ in partitions})


def total(batches: Iterable[Batch]) -> list[Record]:
    return [record for batch in batches for record in batch.records]


@examples(400)
@given(cases(clocks=["stream"]), logs(one_partition_per_key=True), st.data())
def test_stream_clock_model_does_not_depend_on_cuts(
    case: Case, log: list[list[Record]], data: st.DataObject
) -> None:
    whole = [Batch(tuple(itertools.chain(*log)))]
    after_each = [Batch(tuple(group)) for group in log]
    anywhere = data.draw(cut(log))
    outcomes = [outcome(case.model(), batches) for batches in (whole, after_each, anywhere)]
    assert outcomes[0] == outcomes[1] == outcomes[2]


@examples(300)
@given(cases(), histories())
def test_every_record_is_used_repeated_or_late(case: Case, batches: Sequence[Batch]) -> None:
    model = case.model()
    if outcome(model, batches) != "full":
        dropped = model.counts["deduplicated"] + model.counts["expired-window-record-drop"]
        assert model.counts["used"] + dropped == len(total(batches))


@examples(200)
@given(cases(["change"], windows=ALIGNED), histories(one_partition_per_key=True))
def test_change_repeats_a_value_only_as_heartbeat(case: Case, batches: Sequence[Batch]) -> None:
    model = case.model()
    outcome(model, batches)
    # Without a state, which `ttl` removes, each value is new.
    repeating = {"heartbeat", "new"} if model.settings.ttl_ms else {"heartbeat"}
    for emissions in per_window(model.emissions):
        for old, new in itertools.pairwise(emissions):
            if new.reason not in repeating:
                assert not matches(model, old.value, new.value, (old.timestamp, new.timestamp))


def matches(model: Model, old: Value, new: Value, timestamps: tuple[int, int]) -> bool:
    if old is None or new is None:
        return old is new
    return equivalent(model.settings, old, new, timestamps)


@examples(200)
@given(
    cases(emits=["change"], reduces=["latest"], windows=[None], **PLAIN),
    histories(one_partition_per_key=True),
)
def test_last_change_emission_equals_the_last_value(case: Case, batches: Sequence[Batch]) -> None:
    assume(holds_nothing(case))
    model = case.model()
    outcome(model, batches)
    emitted = {emission.key: emission for emission in model.emissions}
    for key, newest in newest_of(batches).items():
        last = emitted.get(key, Emission(key, None, newest.timestamp, None, "", 0))
        value = selected(model.settings, newest.value)
        assert same(last.value, value) or matches(
            model, last.value, value, (last.timestamp, newest.timestamp)
        )


def holds_nothing(case: Case) -> bool:
    """Return whether each change is emitted with its record, and no value without one."""
    return "at_most_every" not in case.stage["emit"] and "ttl" not in case.stage


def newest_of(batches: Iterable[Batch]) -> dict[str, Record]:
    ordered = sorted(
        total(batches),
        key=lambda emission: (emission.topic, emission.partition, emission.offset, emission.group),
    )
    return {record.key: record for record in ordered}


@examples(200)
@given(st.sampled_from(HEARTBEATS), histories(one_partition_per_key=True))
def test_last_change_emission_equals_the_input_sum(heartbeat: str, batches: list[Batch]) -> None:
    stage = {"name": "out", "reduce": {"total": "sum(x)"}, "emit": {"on": "change", "heartbeat": heartbeat}}
    model = Model(stage)
    outcome(model, batches)
    sums: dict[str, float | None] = {}
    for record in {(emission.position, emission.group): emission for emission in total(batches)}.values():
        if record.value is not None:
            previous, x = sums.get(record.key), record.value["x"]
            sums[record.key] = previous if x is None else x if previous is None else previous + x
    emitted = {emission.key: emission.value for emission in model.emissions}
    assert emitted.keys() == sums.keys()
    assert all(same(emitted[key], {"total": sums[key]}) for key in sums)


@examples(200)
@given(cases(["window_close"], windows=ALIGNED), histories(one_partition_per_key=True))
def test_window_close_emits_once_per_key_and_window(case: Case, batches: Sequence[Batch]) -> None:
    model = case.model()
    outcome(model, batches)
    final = [emission for emission in model.emissions if emission.reason == "window_close"]
    assert all(len(emissions) == 1 for emissions in per_window(final))


@examples(200)
@given(cases(emits=["threshold"], reduces=["collect"], windows=TUMBLING, **PLAIN), histories())
def test_each_collected_event_is_flushed_once_or_waits(case: Case, batches: Sequence[Batch]) -> None:
    model = case.model()
    outcome(model, batches)
    accepted = model.counts["used"] - model.counts["tombstones"]
    flushed = sum(len(emission.value["events"]) for emission in model.emissions if emission.value)
    assert flushed + model.buffered().records == accepted
    model.drain()
    assert sum(len(emission.value["events"]) for emission in model.emissions if emission.value) == accepted
    assert model.buffered().records == 0


@examples(200)
@given(histories(), st.sampled_from([None, "stream", "run"]), st.sampled_from(["tumbling", "session"]))
def test_each_record_is_counted_by_one_final_result(batches: list[Batch], clock: str, kind: str) -> None:
    emit = {"on": "window_close", **({"clock": clock} if clock else {})}
    model = Model({**COUNTED, "emit": emit, "window": {kind: "10ms", "grace": "5ms"}})
    outcome(model, batches)
    counted = sum(emission.value["n"] for emission in model.emissions if emission.value)
    assert counted + model.buffered().records == model.counts["used"] - model.counts["tombstones"]


@examples(200)
@given(
    cases(emits=["time_limit", "interval"], windows=TUMBLING, **PLAIN), histories(nulls=False), st.booleans()
)
def test_time_limit_value_is_emitted_replaced_or_waits(
    case: Case, batches: Sequence[Batch], drained: bool
) -> None:
    model = case.model()
    if outcome(model, batches) == "full":
        return
    if drained:
        model.drain()
    replaced = model.counts["intermediate-result-suppression"]
    # A deletion by `ttl` is an emission, and no record causes it.
    emitted = model.counts["emitted"] - model.counts["emitted.expired"]
    assert emitted + replaced + model.buffered().entries == model.counts["used"]


@examples(200)
@given(
    cases(
        emits=["update", "change"],
        reduces=["latest", "aggregates"],
        windows=TUMBLING,
        clocks=["stream"],  # by the clock of a run, heartbeats come without a record
        **PLAIN,
    ),
    histories(nulls=False),
)
def test_interval_value_is_emitted_at_once_or_skipped(case: Case, batches: Sequence[Batch]) -> None:
    assume(holds_nothing(case))
    model = case.model()
    outcome(model, batches)
    assert model.counts["emitted"] + model.counts["idempotent-update-skip"] == model.counts["used"]


@examples(200)
@given(cases(), histories())
def test_a_null_only_follows_a_value(case: Case, batches: Sequence[Batch]) -> None:
    assume(case.stage["emit"].get("deletions") != "all")  # each record without a value goes on
    model = case.model()
    # with a bounded buffer, each partition has a state of its own for a key, and emits nulls of its own
    assume(not model.settings.bounded or not shares_keys(batches))
    outcome(model, batches)
    for emissions in per_window(model.emissions):
        before: Sequence[Value] = [None, *(emission.value for emission in emissions)]
        assert all(
            old is not None
            for old, emission in zip(before, emissions, strict=False)
            if emission.value is None
        )


@examples(200)
@given(cases(), histories())
def test_emissions_are_counted_by_reason(case: Case, batches: Sequence[Batch]) -> None:
    model = case.model()
    outcome(model, batches)
    reasons = Counter(f"emitted.{emission.reason}" for emission in model.emissions)
    assert reasons == Counter({name: n for name, n in model.counts.items() if name.startswith("emitted.")})
    assert model.counts["emitted"] == len(model.emissions)
