"""The actions that a run of a DAG can do in place of a batch. Each returns the lines of its result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from tidegate_airflow.connections import connected, run_step
from tidegate_airflow.replay import Replay, decided_by
from tidegate_airflow.runs import ledger_run_id
from tidegate_airflow.triggers import ActionRequest, Request, refuse_backfill

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.inspect import CatalogEntry
    from tidegate.ledger import Stream

log = logging.getLogger(__name__)
_EXAMPLES = 10


@dataclass(frozen=True)
class Call:
    """One call of an action.

    Args:
        entry: the pipeline file; it may have mistakes.
        stream: the generation of the file.
        run: Airflow's `DagRun`.
        records: the records that the parameters choose; None if they choose none.
    """

    app: App
    entry: CatalogEntry
    stream: Stream
    run: Any
    request: ActionRequest
    records: Replay | None

    @property
    def run_id(self) -> str:
        """The ledger's id of the run: a run that is tried again repeats its decision, and takes no second
        one.
        """
        return ledger_run_id(self.run.run_id, self.run.run_after)


def act_in_place(pipeline_file: str, request: Request, run: Any) -> None:
    """Do the action that a run requests in place of a batch, and log the lines of its result.

    Raises AirflowFailException and AirflowRescheduleException as `run_step`; AirflowFailException for a
    backfill, which would do it for each interval.
    """
    action = request.action
    assert action is not None, "the run requests one"
    refuse_backfill(run, action.name)
    # A decision is about what the person has seen. Promotions are decided under the run's id instead.
    if action.is_decision and run.clear_number:
        raise AirflowFailException(
            f"This run was cleared, and `{action.name}` would decide about what there is now. Trigger a new "
            "run. Nothing was done."
        )
    for line in run_step(lambda: act(pipeline_file, action, request.replay, run)):
        log.info("%s: %s", action.name, line)


def act(pipeline_file: str, request: ActionRequest, records: Replay | None, run: Any) -> list[str]:
    """Do an action for a pipeline file, and return the lines of its result.

    Raises the errors of the action; SettingsInvalid if the file does not say which generation it has.
    """
    from tidegate.app import App

    # An action that only shows something must not migrate or lease anything.
    is_reading = request.name in ("check", "diff") or (request.name == "recover" and not request.is_confirmed)
    app = App.for_reading() if is_reading else App.from_environment()
    entry = _entry_of(app, pipeline_file)
    call = Call(connected(app, entry.streams[0]), entry, entry.streams[0], run, request, records)
    return list(_ACTIONS[request.name](call))


def _entry_of(app: App, pipeline_file: str) -> CatalogEntry:
    from tidegate.errors import SettingsInvalid
    from tidegate.inspect import catalog_entries

    entry = next((entry for entry in catalog_entries(app) if entry.name == pipeline_file), None)
    if entry is None or not entry.streams:
        raise SettingsInvalid(
            f"{pipeline_file}.yaml does not say which pipeline and generation it has", "Correct the file."
        )
    return entry


def check(call: Call) -> Iterator[str]:
    """Return what doctor finds."""
    from tidegate.inspect.examine import examine_entry

    for finding in examine_entry(call.app, call.entry):
        yield f"{finding.state.value}: {finding.check}: {finding.text}"


def compact(call: Call) -> Iterator[str]:
    """Compact the state, also if that is not due."""
    from tidegate import maintenance

    done = maintenance.compact_state(call.app, call.stream, only_if_due=False)
    yield f"{done.stream} batch {done.seq}: {done.note}, {done.before.rows} rows are {done.after.rows}"


def discard(call: Call) -> Iterator[str]:
    """Note that nobody will use the chosen records of quarantine."""
    from tidegate.numerals import counted
    from tidegate.quarantine import ResolutionRequest, discard_records

    records = call.records or Replay()
    rows = records.rows(call.app, call.stream)
    request = ResolutionRequest(rows, decided_by(call.run), records.because, False)
    number, skipped = discard_records(call.app, call.stream, request)
    yield f"Discarded {counted(number, 'record')} of {call.stream}{skipped}."


def diff(call: Call) -> Iterator[str]:
    """Show what another generation would change for consumers, with examples."""
    from tidegate.generations import compare_generations, replaced_stream
    from tidegate.ledger import Stream
    from tidegate_airflow.promotion import difference_lines

    new = Stream(call.stream.pipeline, call.request.generation or 0)
    old = replaced_stream(call.app, new, call.run_id)
    yield from difference_lines(compare_generations(call.app, old, new), _EXAMPLES)


def promote(call: Call) -> Iterator[str]:
    """Put a generation in charge, and publish what it has withheld."""
    from tidegate.generations import promote, replaced_stream
    from tidegate.ledger import Stream

    new = Stream(call.stream.pipeline, call.request.generation or 0)
    app = connected(call.app, new)
    if app.ledger.charge(new.pipeline).generation != new.generation:
        app = connected(app, replaced_stream(app, new, call.run_id))  # it publishes first
    promotion = promote(app, new, call.run_id, call.request.is_net).promotion
    yield f"{new} is in charge: its batches from {promotion.first_seq} on go out."


def rollback(call: Call) -> Iterator[str]:
    """Put the generation in charge again that the one in charge has replaced."""
    from tidegate.generations import rollback
    from tidegate.ledger import Stream

    app, pipeline = call.app, call.stream.pipeline
    charge = app.ledger.charge(pipeline)
    for generation in (charge.generation, charge.previous):
        app = connected(app, Stream(pipeline, generation)) if generation is not None else app
    promotion = rollback(app, pipeline, call.run_id, call.request.is_net).promotion
    yield f"{promotion.stream} is in charge: its batches from {promotion.first_seq} on go out."


def recover(call: Call) -> Iterator[str]:
    """Show what can be done for a stream that cannot continue; do it if the person has confirmed it."""
    from tidegate.recovery import UnknownCause, carry_out, find_proposals
    from tidegate.recovery.remedy import Options, Situation

    by = decided_by(call.run)
    situation = Situation(call.app, call.stream, Options(choice=call.request.remedy, by=by))
    findings = list(find_proposals(situation))
    if not findings:
        yield f"{call.stream} needs no remedy {call.request.remedy or ''}".rstrip() + "."
    for finding in findings:
        if isinstance(finding, UnknownCause):
            yield f"{finding.remedy}: whether it can help is not known: {finding.error}"
            continue
        yield f"{finding.remedy}: {finding.cause}"
        yield from (f"  - {effect}" for effect in finding.effects)
        if call.request.is_confirmed:
            yield from carry_out(situation, finding, by)


_ACTIONS: Mapping[str, Callable[[Call], Iterator[str]]] = {
    "check": check,
    "compact": compact,
    "discard": discard,
    "diff": diff,
    "promote": promote,
    "rollback": rollback,
    "recover": recover,
}
"""Action -> what does it. `triggers.ACTIONS` has the same names, without the imports."""
