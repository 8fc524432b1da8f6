"""The condition of a stream by recorded facts alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.manifests import manifest_ref
from tidegate.errors import LedgerUnavailable, PlanUnreadable
from tidegate.ledger import Attempt, Failure, Head, OffsetRange, Plan, Stream, StreamStatus
from tidegate.ledger.stream_condition import (
    ConditionKind,
    StreamFacts,
    Urgency,
    derive_condition,
    undecided_without_file,
)

STREAM = Stream("visitors", 1)
NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
HEAD = Head(STREAM, 3, {("t", 0): 9}, {"t": "id"}, {}, {("t", 0): NOW_MS})
STATUS = StreamStatus(HEAD, None, NOW_MS / 1000, NOW_MS, None, None)
FACTS = StreamFacts(STREAM, STATUS)
PLAN = Plan(STREAM, 4, "r", NOW_MS, NOW_MS, (OffsetRange("t", 0, 9, 10),), {"t": "id"}, "", "")
ATTEMPT = Attempt(STREAM, 4, manifest_ref("a4"), {})


def failure(step: str, error: str = "TopicRecreated", seq: int = 4) -> Failure:
    return Failure(STREAM, seq, step, error, "It failed", "Cure it.", NOW_MS)


def condition(facts: StreamFacts) -> ConditionKind:
    return derive_condition(facts, NOW_MS).condition


def planned(minutes_ago: float, holder: str | None = None) -> StreamFacts:
    planned_at = (NOW_MS - minutes_ago * MINUTE_MS) / 1000
    return replace(
        FACTS, status=replace(STATUS, holder=holder, open_seq=4, planned_at=planned_at), open_plan=PLAN
    )


def with_clock(clock_ms: int) -> StreamFacts:
    return replace(FACTS, status=replace(STATUS, head=replace(HEAD, clocks={("t", 0): clock_ms})))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (FACTS, ConditionKind.OK),
        (StreamFacts(STREAM), ConditionKind.NOT_STARTED),
        (replace(FACTS, status=replace(STATUS, head=Head(STREAM))), ConditionKind.NOT_STARTED),
        (replace(FACTS, is_withheld=True), ConditionKind.WITHHELD),
        (replace(FACTS, has_file=False), ConditionKind.RETIRED),
        (replace(FACTS, has_file=False, is_withheld=True), ConditionKind.RETIRED),
    ],
)
def test_a_stream_without_a_cause_asks_nothing(facts: StreamFacts, expected: ConditionKind) -> None:
    derived = derive_condition(facts, NOW_MS)
    assert (derived.condition, derived.causes, derived.is_troubled) == (expected, (), False)


@pytest.mark.parametrize(
    ("error", "expected", "urgency"),
    [
        ("TopicRecreated", ConditionKind.HALTED, Urgency.ACT),
        ("AnErrorOfANewerTidegate", ConditionKind.HALTED, Urgency.ACT),
        ("Fenced", ConditionKind.FENCED, Urgency.ACT),
        ("BrokerUnavailable", ConditionKind.FAILING, Urgency.RETRY),
    ],
)
@pytest.mark.parametrize("step", ["plan", "compute", "validate", "commit"])
def test_last_failure_of_any_step_is_the_condition(
    step: str, error: str, expected: ConditionKind, urgency: Urgency
) -> None:
    derived = derive_condition(replace(FACTS, failures=(failure(step, error),)), NOW_MS)
    assert (derived.condition, derived.condition.urgency) == (expected, urgency)
    (cause,) = derived.causes
    assert cause.text == (
        f"batch 4 failed in {step} at 2027-01-15 08:00:00+00:00: {error}: It failed. Cure it."
    )


@pytest.mark.parametrize("step", ["compute", "validate"])
def test_step_success_clears_its_failure(step: str) -> None:
    facts = replace(planned(1), failures=(failure(step),), open_attempt=replace(ATTEMPT, validated=True))
    assert condition(facts) is ConditionKind.OK


def test_computed_batch_keeps_a_failed_check() -> None:
    facts = replace(planned(1), failures=(failure("validate"),), open_attempt=ATTEMPT)
    assert condition(facts) is ConditionKind.HALTED


def test_published_sinks_clear_a_failed_publication() -> None:
    facts = replace(FACTS, failures=(failure("publish", "Fenced", 3),), unpublished=("kafka:t",))
    assert condition(facts) is ConditionKind.FENCED
    assert condition(replace(facts, unpublished=())) is ConditionKind.OK


def test_unpublished_batch_without_worker_is_behind() -> None:
    facts = replace(FACTS, unpublished=("kafka:t",))
    (cause,) = derive_condition(facts, NOW_MS).causes
    assert cause.what.startswith("batch 3 is committed and not published to kafka:t, no try has failed")
    assert condition(facts) is ConditionKind.BEHIND
    assert condition(replace(facts, status=replace(STATUS, holder="r"))) is ConditionKind.OK


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (planned(9), ConditionKind.OK),
        (planned(10), ConditionKind.BEHIND),
        (planned(600, holder="run"), ConditionKind.OK),
        (replace(planned(600), failures=(failure("compute"),)), ConditionKind.HALTED),
    ],
)
def test_planned_batch_without_worker_becomes_behind(facts: StreamFacts, expected: ConditionKind) -> None:
    assert condition(facts) is expected
    assert len(derive_condition(facts, NOW_MS).causes) == (expected is not ConditionKind.OK)


@pytest.mark.parametrize(("minutes", "expected"), [(10, ConditionKind.OK), (11, ConditionKind.CLOCK_AHEAD)])
def test_clock_ahead_of_now_is_a_condition(minutes: int, expected: ConditionKind) -> None:
    clock_ms = NOW_MS + minutes * MINUTE_MS
    assert condition(with_clock(clock_ms)) is expected
    assert condition(replace(FACTS, open_plan=replace(PLAN, clock_ms=clock_ms))) is expected


def test_clock_ahead_names_the_lowering_command() -> None:
    (cause,) = derive_condition(with_clock(2_900_000_000_000), NOW_MS).causes
    assert "the clock of visitors/1 is 2061-11-23" in cause.what
    assert "tidegate recover visitors --choose lower-clock --generation 1" in cause.fix


@pytest.mark.parametrize(
    ("lag", "minutes", "expected"),
    [
        (5, 20, ConditionKind.OK),  # two intervals of five minutes, and ten minutes
        (5, 21, ConditionKind.BEHIND),
        (0, 21, ConditionKind.OK),
        (None, 21, ConditionKind.OK),
    ],
)
def test_records_waiting_two_intervals_make_it_behind(
    lag: int | None, minutes: int, expected: ConditionKind
) -> None:
    facts = replace(with_clock(NOW_MS - minutes * MINUTE_MS), lag=lag, schedule_gap=timedelta(minutes=5))
    assert condition(facts) is expected
    assert condition(replace(facts, schedule_gap=None)) is ConditionKind.OK


def test_a_file_with_mistakes_halts_its_stream() -> None:
    derived = derive_condition(replace(FACTS, file_mistake="visitors.yaml:3: stages: wrong"), NOW_MS)
    assert derived.condition is ConditionKind.HALTED
    assert derived.causes[0].error == "PipelineInvalid"


def test_lost_pipeline_text_halts_the_stream() -> None:
    lost = replace(FACTS, unreadable=PlanUnreadable("It is lost", "Restore the ledger."))
    assert derive_condition(lost, NOW_MS).causes[0].text == "PlanUnreadable: It is lost. Restore the ledger."
    assert condition(lost) is ConditionKind.HALTED
    assert condition(replace(FACTS, unreadable=LedgerUnavailable("away"))) is ConditionKind.FAILING


def test_open_batch_without_a_file_is_behind() -> None:
    facts = replace(planned(600), has_file=False, lag=5, schedule_gap=timedelta(minutes=1))
    facts = replace(facts, status=with_clock(NOW_MS * 2).status)
    derived = derive_condition(facts, NOW_MS)
    assert (derived.condition, derived.causes) == (ConditionKind.BEHIND, (undecided_without_file(STREAM, 4),))


def test_retired_stream_forgets_its_failed_plan() -> None:
    facts = replace(FACTS, has_file=False, failures=(failure("plan", "StartOverRefused"),))
    assert condition(facts) is ConditionKind.RETIRED
    assert condition(replace(facts, has_file=True)) is ConditionKind.HALTED
    assert condition(replace(facts, failures=(failure("start", "LedgerMismatch"),))) is ConditionKind.FENCED


def test_worst_condition_is_first_of_all_causes() -> None:
    facts = replace(
        with_clock(NOW_MS + 60 * MINUTE_MS),
        failures=(failure("publish", "SinkUnavailable", 3), failure("plan", "OffsetsLost")),
        unpublished=("kafka:t",),
    )
    derived = derive_condition(facts, NOW_MS)
    assert [cause.condition for cause in derived.causes] == [
        ConditionKind.HALTED,
        ConditionKind.FAILING,
        ConditionKind.CLOCK_AHEAD,
    ]
    assert derived.condition is ConditionKind.HALTED
