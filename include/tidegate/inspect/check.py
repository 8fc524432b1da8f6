"""Evaluate suites over committed data: the emissions of any batch, or the state as of a batch; and find the
first batch that breaks one. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tidegate.app.outboxes import StoredOutboxes
from tidegate.app.root import App, StateFiles, batch_named, needed_by, state_after, state_named
from tidegate.batch.suites import checked_suite, stage_facts, suite_parameters
from tidegate.errors import SettingsInvalid
from tidegate.ledger import Stream
from tidegate.ledger.batches import oldest_readable
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.kernel_stages import kernel_stage
from tidegate.model.pipeline import Pipeline
from tidegate.model.quality import QualityCheck
from tidegate.model.stage import Stage, stage_named
from tidegate.model.trusted import require_trusted_modules
from tidegate.quality.audit import Audit, StateRows, audited_rows
from tidegate.quality.facts import BUILTIN_TYPES, StageFacts, needs_of
from tidegate.quality.suite import ExpectationSpec, Suite
from tidegate.quality.verdict import ExpectationResult, Verdict
from tidegate.storage import Manifest, Store

Evaluate = Callable[[Audit], Verdict]
"""`quality.gate.check`, in this process or another."""
Fails = Callable[[int], bool]


@dataclass(frozen=True)
class Checked:
    """The verdict of a suite.

    Args:
        seq: The batch; if `is_state`, the batch after which the state was read.
        audited: The rows that were checked, as in a pipeline file: `values`, `emissions` or `state`.
    """

    seq: int
    is_state: bool
    suite: str
    stage: str
    audited: str
    verdict: Verdict

    @property
    def failed(self) -> tuple[ExpectationResult, ...]:
        """The expectations that are not met or could not be evaluated, of any severity."""
        return self.verdict.failed()


class Checker:
    """Evaluates checks of one stream, by the suites in their files as they are now, or as a check was
    planned.

    Built-in expectations apply to batches, and are left out for a state.

    Args:
        only: Types of expectations, or `type(columns)`; empty for all.

    Methods raise SettingsInvalid, LakeDamaged, LakeUnavailable, LedgerUnavailable, StateGivenUp. Raises
    SettingsInvalid itself if no suite has an expectation of `only`.
    """

    def __init__(
        self,
        app: App,
        stream: Stream,
        checks: Sequence[QualityCheck],
        evaluate: Evaluate,
        only: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._stream = stream
        self._evaluate = evaluate
        self._outboxes = StoredOutboxes(app, stream)
        require_trusted_modules(module for check in checks for module in check.modules)
        # Read once: all batches are evaluated by the same suite, even if its file changes meanwhile.
        self._suites = [(check, _suite(app, check, only)) for check in checks]
        if not any(suite.expectations for _, suite in self._suites):
            names = ", ".join(dict.fromkeys(check.suite for check in checks))
            raise SettingsInvalid(
                f"No suite has {' or '.join(only) or 'an expectation'}",
                f"Looked at: {names}. Name another with --suite.",
            )

    def batch(self, seq: int) -> list[Checked]:
        """Evaluate the checks over what a committed batch has written. Raises SettingsInvalid if there is
        no such batch, EmissionsExpired if its emissions are no longer kept.
        """
        committed = dict(self._app.ledger.committed(self._stream, seq - 1))
        if seq not in committed:
            raise _no_such_batch(self._app, self._stream, seq)
        with needed_by(batch_named(self._stream, seq)):
            manifest = self._app.manifest(self._stream, committed[seq])
            return [self._of_batch(seq, manifest, check, suite) for check, suite in self._suites]

    def state(self, seq: int) -> list[Checked]:
        """Evaluate the checks over the state after a batch: one row for each live key (and window). Raises
        StateGivenUp.
        """
        with needed_by(state_named(self._stream, seq)):
            manifests = self._app.ledger.state_manifests(self._stream, seq)
            state = state_after(self._app, self._stream, manifests)
            return [self._of_state(seq, state, check, suite) for check, suite in self._suites]

    def _of_batch(self, seq: int, manifest: Manifest, check: QualityCheck, suite: Suite) -> Checked:
        pipeline, stage = self._planned(seq, check)
        if check.rows != "state" and stage.name not in pipeline.published_stages:
            raise SettingsInvalid(
                f"The emissions of the stage {stage.name} are not kept in batch {seq} of {self._stream}",
                "Add a sink or a check of the stage to the pipeline; those of its next batches are kept.",
            )
        # Only these rows are in the batch's files; the whole state is `state`.
        if check.rows == "state":
            files = manifest.files_of("state", stage.name)
        else:
            files = self._outboxes.files(manifest, stage.name)
        rows = audited_rows(pipeline, check, self._store, files)
        parameters, facts = self._parameters_and_facts(seq, pipeline, stage, suite)
        audit = Audit(check.suite, suite, rows, parameters, check.modules, facts=facts)
        return Checked(seq, False, check.suite, stage.name, check.rows, self._evaluate(audit))

    def _of_state(self, seq: int, state: StateFiles, check: QualityCheck, suite: Suite) -> Checked:
        pipeline, stage = self._planned(seq, check)
        files = state.get(stage.name, ())
        is_bounded = kernel_stage(pipeline, stage).bound is not None
        rows = StateRows.from_files(audited_rows(pipeline, check, self._store, files), is_bounded)
        # Built-in expectations compare counts of a batch, which a state does not have.
        suite = _some(suite, lambda spec: spec.type not in BUILTIN_TYPES)
        parameters, _ = self._parameters_and_facts(seq, pipeline, stage, suite)
        audit = Audit(check.suite, suite, rows, parameters, check.modules)
        return Checked(seq, True, check.suite, stage.name, check.rows, self._evaluate(audit))

    def _parameters_and_facts(
        self, seq: int, pipeline: Pipeline, stage: Stage, suite: Suite
    ) -> tuple[Mapping[str, float], StageFacts | None]:
        """Return the suite's parameters, and the facts about the batch that its built-in expectations
        need.

        Both are empty if the ledger has only the commit of the batch, since its plan has expired.
        """
        plan, attempt = self._app.ledger.plan(self._stream, seq), self._app.ledger.attempt(self._stream, seq)
        if plan is None or attempt is None:
            return {}, None
        parameters = suite_parameters(self._app, plan, attempt, stage.name, suite)
        needs = needs_of(map(asdict, suite.expectations))
        return parameters, stage_facts(self._app, plan, attempt, pipeline, stage, needs)

    def _planned(self, seq: int, check: QualityCheck) -> tuple[Pipeline, Stage]:
        """Return the pipeline and the stage of a check, as the batch was planned; as the head, if the plan
        has expired.
        """
        ledger = self._app.ledger
        # The ledger keeps only the commit of an old batch (docs/decisions/0016).
        plan = ledger.plan(self._stream, seq) or ledger.plan(self._stream, ledger.head(self._stream).seq)
        if plan is None:
            raise _no_such_batch(self._app, self._stream, seq)
        pipeline = planned_pipeline(plan)
        if check.stage is not None:
            stage_named(pipeline.stages, check.stage, batch_named(self._stream, seq))
        return pipeline, pipeline.checked_stage(check)

    @property
    def _store(self) -> Store:
        return self._app.lake(self._stream).store


def requested_checks(
    own: Sequence[QualityCheck], suites: Sequence[str], stage: str | None, of_state: bool
) -> tuple[QualityCheck, ...]:
    """Return the checks to evaluate.

    Args:
        own: The checks of the pipeline file, which are used if `suites` is empty.
        suites: Suites to evaluate on `stage` (None: the last stage) instead.
        of_state: Evaluate the suites on the whole state; of the file's own checks only those of the state.

    Raises SettingsInvalid if there is no such check.
    """
    if suites:
        audited = "state" if of_state else "values"
        return tuple(whole_stage(suite, stage, audited) for suite in dict.fromkeys(suites))
    checks = [check for check in own if not of_state or check.rows == "state"]
    checks = [check for check in checks if stage is None or check.stage == stage]
    if not checks:
        what = "of state " if of_state else f"of the stage {stage} " if stage else ""
        raise SettingsInvalid(
            f"The pipeline file has no quality check {what}".rstrip(), "Name a suite with --suite."
        )
    return tuple(checks)


def whole_stage(suite: str, stage: str | None, audited: str = "values") -> QualityCheck:
    """Return a check that is in no file: of all rows of a stage (None: the last), whatever sinks it has.

    Args:
        audited: The rows, as a pipeline file names them in `of`: `values`, `emissions` or `state`.
    """
    # Without validation: the scope of a file, which the validators need, does not exist here.
    return QualityCheck.model_construct(
        suite=suite, stage=stage, sink=None, of=audited, on_failure="stop", modules=()
    )


def committed_seqs(app: App, stream: Stream, first: int | None = None, last: int | None = None) -> list[int]:
    """Return the committed batches from `first` to `last`, both included, whose plans the ledger still
    has.

    None stands for the oldest, or the newest. Raises SettingsInvalid if there is none, LedgerUnavailable.
    """
    head = app.ledger.head(stream).seq
    stop = min(head, last if last is not None else head)
    seqs = [
        facts.seq
        for facts in app.ledger.batches(stream, stop + 1, max(0, stop - (first or 1) + 1))
        if facts.plan is not None and facts.committed_at is not None and facts.seq >= (first or 1)
    ]
    if not seqs:
        raise _no_such_batch(app, stream, first if first is not None else stop)
    # The ledger lists the newest first.
    return seqs[::-1]


def kept_states(app: App, stream: Stream, first: int | None = None, last: int | None = None) -> range:
    """Return the batches from `first` to `last` after which the state can still be read.

    Raises SettingsInvalid if there is none, LedgerUnavailable.
    """
    oldest = oldest_readable(app.ledger.snapshots(stream))
    head = app.ledger.head(stream).seq
    seqs = range(max(oldest, first or 1), min(head, last if last is not None else head) + 1)
    if not seqs:
        raise _no_such_batch(app, stream, first if first is not None else head)
    return seqs


def _no_such_batch(app: App, stream: Stream, seq: int) -> SettingsInvalid:
    head = app.ledger.head(stream).seq
    if not head:
        return SettingsInvalid(f"{stream} has no committed batch yet", "Run it first.")
    return SettingsInvalid(f"Batch {seq} of {stream} is not kept", f"The newest is batch {head}.")


def _suite(app: App, check: QualityCheck, only: Sequence[str]) -> Suite:
    """Return the suite as its file is now, or as the check was planned with it."""
    suite = checked_suite(check, app.settings.expectations, ()).suite
    return _some(suite, lambda spec: not only or not {spec.type, _title(spec)}.isdisjoint(only))


def _title(spec: ExpectationSpec) -> str:
    return f"{spec.type}({', '.join(spec.columns)})"


def _some(suite: Suite, is_chosen: Callable[[ExpectationSpec], bool]) -> Suite:
    return replace(suite, expectations=tuple(filter(is_chosen, suite.expectations)))


@dataclass(frozen=True)
class Bisection:
    """The result of a search.

    Args:
        first: The first batch that fails; None if none does.
        looked_at: The number of batches that were evaluated.
    """

    first: int | None
    looked_at: int


def first_failing(seqs: Sequence[int], fails: Fails) -> Bisection:
    """Return the first of `seqs` that fails, evaluating one after the other.

    Use it if a batch that fails says nothing about the next one.

    Args:
        seqs: The batches to evaluate, in the order in which they are evaluated.
        fails: Evaluates one batch, which can take long.
    """
    for number, seq in enumerate(seqs, start=1):
        if fails(seq):
            return Bisection(seq, number)
    return Bisection(None, len(seqs))


def first_broken(seqs: Sequence[int], fails: Fails) -> Bisection:
    """Return the first of `seqs` that fails by bisection, if all batches after it fail, too.

    The result has no batch if the last one does not fail. If the defect was repaired in between and came
    back, the result is the first batch of one of these times: the batch before it does not fail, unless it is
    the first of all.

    Args:
        seqs: In rising order.

    Example::

        first_broken(range(1, 100), lambda seq: seq >= 42).first  # 42
    """
    # One evaluation of the last batch saves the search if nothing is broken.
    if not seqs or not fails(seqs[-1]):
        return Bisection(None, min(len(seqs), 1))
    # invariant: `high` fails, and no batch before `low` is known to fail
    low, high, looked_at = 0, len(seqs) - 1, 1
    while low < high:
        middle = (low + high) // 2
        looked_at += 1
        if fails(seqs[middle]):
            high = middle
        else:
            low = middle + 1
    return Bisection(seqs[high], looked_at)
