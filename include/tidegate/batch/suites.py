"""Find the quality suites of a batch, and the numbers and facts that they compare the batch with.

Suites are pinned when a batch is planned, so that each try of it meets the same. There is one exception: if
a suite has stopped a try, a person has looked, and may have corrected the file. So the next try takes the
file as it then is (see docs/decisions).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App, batch_named, needed_by, state_after, state_named
from tidegate.batch_counts import outgoing
from tidegate.errors import StateGivenUp
from tidegate.ledger import Attempt, Plan, QualityResult
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.planned import suite_text, with_checkpoints, with_digests, with_suites
from tidegate.model.quality import QualityCheck
from tidegate.model.stage import Stage
from tidegate.quality.facts import BUILTIN_TYPES, BatchCounts, Needs, StageFacts, batch_counts
from tidegate.quality.suite import Severity, Suite, parse_suite
from tidegate.storage import DataFile

log = logging.getLogger(__name__)
_DEFAULT_SEVERITIES = {"warn": Severity.WARNING}
MOST_BATCHES = 20
"""How many batches before it a batch is compared with."""
COUNTS = {
    "read": "records that were read",
    "used": "records that were used",
    "quarantined": "records in quarantine",
    "deduplicated": "records that were dropped as repetitions",
    "late": "records that came too late for their window",
    "emitted": "emissions of the stage that is looked at, deletions included",
}
"""What is counted of a batch, and what each counts."""


@dataclass(frozen=True)
class CheckedSuite:
    """A check's suite, as a try of a batch meets it. `digest`: SHA-256 of its text, in hex."""

    suite: Suite
    digest: str


def pinned(app: App, pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with what it names beside its file, as that is now: functions, checkpoints, suites.

    Raises UserFunctionFailed, and SettingsInvalid if a checkpoint or a suite is missing or cannot be read.
    """
    folder = app.settings.expectations
    pipeline = with_checkpoints(pipeline, folder)
    for check in pipeline.checks:
        _parsed(check, suite_text(folder, check.suite), folder)
    return with_suites(with_digests(pipeline), partial(suite_text, folder))


def checked_suite(check: QualityCheck, folder: Path, earlier: Sequence[QualityResult]) -> CheckedSuite:
    """Return the suite that a try evaluates. `earlier` are the results of the tries before it.

    Raises SettingsInvalid if the file is needed, and is missing or no suite.
    """
    text = check.suite_text
    if text is None:
        text = suite_text(folder, check.suite)
    elif was_stopped(earlier) and (now := suite_text(folder, check.suite)) != text:
        log.warning(
            "The suite %s was edited since it stopped the batch: it is not what was planned with any more",
            check.suite,
        )
        text = now
    return CheckedSuite(_parsed(check, text, folder), hashlib.sha256(text.encode()).hexdigest())


def was_stopped(earlier: Iterable[QualityResult]) -> bool:
    """Return whether a suite has stopped the last try of a batch."""
    results = list(earlier)
    last = max((result.try_number for result in results), default=0)
    return any(
        not result.passed and result.severity == Severity.CRITICAL
        for result in results
        if result.try_number == last
    )


def _parsed(check: QualityCheck, text: str, folder: Path) -> Suite:
    default = _DEFAULT_SEVERITIES.get(check.on_failure, Severity.CRITICAL)
    place = f"The suite {folder / check.suite}.json"
    return parse_suite(text, place, default, additional_types=None if check.modules else BUILTIN_TYPES)


def suite_parameters(app: App, plan: Plan, attempt: Attempt, stage: str, suite: Suite) -> dict[str, float]:
    """Return the parameters of suites: name -> value. Empty if the suite has none.

    Of the batches before: `previous_read` of the last one, `mean_read`, `min_read` and `max_read` of at most
    20. Before there is any they are not there.

    Args:
        stage: the stage that is looked at.
    """
    # Parameters are computed from earlier batches, which takes queries that most suites do not need.
    if not any(spec.parameters for spec in suite.expectations):
        return {}
    values: dict[str, float] = {"batch": plan.seq, "clock": plan.clock_ms}
    values |= _batch_counts(attempt, stage)
    before = [
        facts.attempt
        for facts in app.ledger.batches(plan.stream, plan.seq, MOST_BATCHES)
        if facts.attempt is not None
    ]
    for name in COUNTS:
        # The ledger lists the newest batch first. A batch from before the stage has no emissions to compare.
        numbers = [
            _batch_counts(past, stage)[name] for past in before if name != "emitted" or stage in past.counts
        ]
        if not numbers:
            continue
        values |= {
            f"previous_{name}": numbers[0],
            f"mean_{name}": fmean(numbers),
            f"min_{name}": min(numbers),
            f"max_{name}": max(numbers),
        }
    return values


def _batch_counts(attempt: Attempt, stage: str) -> Mapping[str, float]:
    whole, audited = map(attempt.stage_counts, ("", stage))
    return {
        **{name: whole.get(name, 0) for name in ("read", "used", "quarantined", "deduplicated")},
        "late": whole.get("late-record-drop", 0),
        "emitted": outgoing(audited),
    }


def stage_facts(
    app: App, plan: Plan, attempt: Attempt, pipeline: Pipeline, stage: Stage, needs: Needs
) -> StageFacts | None:
    """Return the facts of one stage in a batch, committed or only computed; None if `needs` is empty.

    `needs` are those of the suite's built-in expectations: nothing else is read. `state_before` is None if
    that state is no longer kept; batches whose counts have left the ledger are not in the history. Raises
    LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    if not needs.is_any:
        return None
    with needed_by(batch_named(plan.stream, plan.seq)):
        outbox = app.manifest(plan.stream, attempt.manifest).files_of("outbox", stage.name)
    return StageFacts(
        logic=kernel_stage(pipeline, stage),
        counts=_stage_counts(attempt, pipeline, stage),
        store=app.lake(plan.stream).store,
        outbox=outbox,
        history=tuple(_history(app, plan, pipeline, stage, needs.history)),
        outboxes_before=tuple(_outboxes_before(app, plan, stage, needs.outboxes)),
        state_before=_state_before(app, plan, stage) if needs.has_state else None,
        # An erasure removes also the rows of its own batch.
        lacks_erased=any(erasure.seq >= plan.seq for erasure in app.ledger.erasures(plan.stream)),
    )


def _stage_counts(attempt: Attempt, pipeline: Pipeline, stage: Stage) -> BatchCounts:
    return batch_counts(attempt.counts, stage.name, pipeline.sources.explodes)


def _history(app: App, plan: Plan, pipeline: Pipeline, stage: Stage, batches: int) -> Iterator[BatchCounts]:
    """Yield the counts of the committed batches before this one, newest first.

    A batch from before the stage existed is skipped.
    """
    if not batches:
        return
    for past in app.ledger.batches(plan.stream, plan.seq, batches):
        if past.attempt is not None and past.committed_at is not None and stage.name in past.attempt.counts:
            yield _stage_counts(past.attempt, pipeline, stage)


def _outboxes_before(app: App, plan: Plan, stage: Stage, batches: int) -> Iterator[tuple[DataFile, ...]]:
    """Yield the outbox files of the batches before this one that are kept, newest first."""
    if not batches:
        return
    # `committed` lists what comes after a batch, in rising order; this batch may be listed, too.
    expired = StoredOutboxes(app, plan.stream).expired
    committed = app.ledger.committed(plan.stream, max(expired, plan.seq - 1 - batches))
    for seq, manifest in reversed(committed):
        if seq < plan.seq:
            with needed_by(batch_named(plan.stream, seq)):
                yield app.manifest(plan.stream, manifest).files_of("outbox", stage.name)


def _state_before(app: App, plan: Plan, stage: Stage) -> tuple[DataFile, ...] | None:
    before = plan.seq - 1
    try:
        manifests = app.ledger.state_manifests(plan.stream, before)
    except StateGivenUp:
        return None
    with needed_by(state_named(plan.stream, before)):
        return state_after(app, plan.stream, manifests).get(stage.name, ())
