"""Late records: dropped, or quarantined whole with their window and lateness. The same ones are late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kernel.test_on_error import Decided, decide, record
from tidegate import kernel

COUNT = kernel.Aggregates((kernel.Aggregate("n", "count"),))
TUMBLING = kernel.Stage(COUNT, kernel.Update(), kernel.Tumbling(10, 5), name="tens")
CLOSING = replace(TUMBLING, emit=kernel.WindowClose(clock="stream"))


def quarantining(stage: kernel.Stage) -> kernel.Stage:
    return replace(stage, on_late="quarantine")


def reasons(decided: Decided) -> list[tuple[int, str]]:
    return [(row["offset"], row["input"]["reason"]) for row in decided.quarantined]


@pytest.mark.parametrize("stage", [TUMBLING, CLOSING])
def test_late_record_is_quarantined_with_its_window(stage: kernel.Stage) -> None:
    decided = decide(
        quarantining(stage), [record(0, 3, n=1), record(1, 20, n=1), record(2, 4, n=1), record(3, 21, n=1)]
    )
    assert reasons(decided) == [(2, "late: 16 ms behind its partition; its window [0, 10] was over at 15")]
    assert decided.quarantined[0]["input"]["value"] == b"2"
    assert decided.quarantined[0]["timestamp"] == 4


@pytest.mark.parametrize("stage", [TUMBLING, CLOSING])
def test_late_records_are_counted_as_before(stage: kernel.Stage) -> None:
    log = [record(0, 3, n=1), record(1, 20, n=1), record(2, 4, n=1), record(3, 0, key="other", n=1)]
    dropped, quarantined = decide(stage, log), decide(quarantining(stage), log)
    assert quarantined.emissions == dropped.emissions
    assert quarantined.states == dropped.states
    assert dict(quarantined.counts - dropped.counts) == {"late-quarantined": 2}
    assert quarantined.counts["expired-window-record-drop"] == 2
    assert quarantined.counts["quarantined"] == 0
    assert kernel.Counts(quarantined.counts).accounted == 4


def test_record_late_for_some_windows_is_used() -> None:
    stage = quarantining(replace(TUMBLING, window=kernel.Hopping(10, 5)))
    decided = decide(stage, [record(0, 12, n=1), record(1, 9, n=1), record(2, 3, n=1)])
    assert reasons(decided) == [(2, "late: 9 ms behind its partition; its window [0, 10] was over at 10")]
    assert (decided.counts["used"], decided.counts["late-record-drop"]) == (2, 2)


def test_late_session_is_quarantined_with_its_own_span() -> None:
    stage = quarantining(replace(TUMBLING, window=kernel.Session(4, 5)))
    decided = decide(stage, [record(0, 30, n=1), record(1, 7, n=1)])
    assert reasons(decided) == [(1, "late: 23 ms behind its partition; its window [7, 7] was over at 16")]


def test_late_sliding_record_is_quarantined() -> None:
    stage = quarantining(replace(TUMBLING, window=kernel.Sliding(10, 0)))
    decided = decide(stage, [record(0, 100, n=1), record(1, 89, n=1)])
    assert reasons(decided) == [(1, "late: 11 ms behind its partition; its window [89, 99] was over at 100")]


def test_unusable_and_late_records_are_counted_apart() -> None:
    total = kernel.Aggregates((kernel.Aggregate("n", "sum"),))
    stage = quarantining(replace(TUMBLING, reduce=total, on_error="quarantine"))
    log = [record(0, 20, n=2**63 - 1), record(1, 21, n=1), record(2, 4, n=1)]
    decided = decide(stage, log)
    assert [offset for offset, _ in reasons(decided)] == [1, 2]
    assert (decided.counts["quarantined"], decided.counts["late-quarantined"]) == (1, 1)


@pytest.mark.parametrize(
    "stage",
    [
        TUMBLING,
        CLOSING,
        replace(TUMBLING, window=kernel.Hopping(10, 5)),
        replace(TUMBLING, window=kernel.Session(4, 5)),
        replace(TUMBLING, window=kernel.Sliding(10, 0)),
    ],
)
def test_emitted_late_records_are_the_quarantined_ones(stage: kernel.Stage) -> None:
    log = [
        record(at, timestamp, "ab"[at % 2], n=at) for at, timestamp in enumerate([3, 40, 4, 41, 9, 60, 2, 70])
    ]
    quarantined, emitted = decide(quarantining(stage), log), decide(replace(stage, on_late="emit"), log)
    assert [row | {"record": None} for row in quarantined.emissions] == emitted.emissions
    assert [row | {"record": None} for row in quarantined.states] == emitted.states
    assert emitted.counts["late-emitted"] == len(emitted.late) == len(quarantined.quarantined) > 0
    windows = {row["offset"]: [row["window_start"], row["window_end"]] for row in emitted.late}
    for offset, reason in reasons(quarantined):
        assert f"its window {windows[offset]} was over" in reason
    behind = {row["offset"]: row["value"]["lateness"] for row in emitted.late}
    assert {offset: f"late: {behind[offset]} ms" for offset in behind} == {
        offset: reason.partition(" behind")[0] for offset, reason in reasons(quarantined)
    }


def test_late_records_of_a_key_are_numbered() -> None:
    stage = replace(TUMBLING, on_late="emit")
    log = [record(0, 90, n=1), record(1, 90, "b", n=1), *(record(at, at, n=at) for at in (2, 3, 4))]
    late = decide(stage, [*log, record(5, 7, "b", n=5)]).late
    assert [(row["key"], row["ordinal"], row["value"]["n"]) for row in late if row["key"] == "k"] == [
        ("k", 0, 2),
        ("k", 1, 3),
        ("k", 2, 4),
    ]
    assert [(row["ordinal"], row["reason"], row["timestamp"]) for row in late if row["key"] == "b"] == [
        (0, "late", 7)
    ]


def test_late_deletion_has_a_null_value() -> None:
    stage = replace(TUMBLING, reduce=kernel.Latest(), on_late="emit")
    decided = decide(stage, [record(0, 90, n=1), record(1, 2) | {"value": None}])
    assert [(row["offset"], row["value"]) for row in decided.late] == [(1, None)]
