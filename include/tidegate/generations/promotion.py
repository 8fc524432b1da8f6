"""Generations side by side: one is in charge and publishes, the others withhold what they decide.

Promotion is one compare-and-set in the ledger (`LeasedLedger.promote`), made under the leases of both
generations, and only when all batches of the replaced one are published. A publisher of the replaced
generation that sleeps until later finds each sink at its last batch, and is fenced there. Batches that it
decides afterwards are withheld, since they come after the last one that the promotion names. The batches that
the new generation has withheld are published next, by this process or the generation's next run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from tidegate.app.lease import leased
from tidegate.app.root import App
from tidegate.app.tables import catch_up_tables
from tidegate.batch.pipeline_files import head_plan
from tidegate.batch.publish import publish_decided
from tidegate.errors import Halted, SettingsInvalid
from tidegate.generations.lifecycle import require_generation
from tidegate.generations.net import net_batch
from tidegate.ledger import Charge, Head, LeasedLedger, Plan, Promotion, Stream
from tidegate.ledger.erasure import require_no_erasure
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.airflow import AirflowSettings
from tidegate.yaml.load import load_defaults, load_generations, stream_in_broken_file

_KEY = "approve_promotion"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Approval:
    """The approval of a promotion by a person.

    `after` is the number of the newest promotion when the person saw the difference; None if that is unknown.
    """

    approved_by: str
    after: int | None = None


def needs_approval(app: App, pipeline: str) -> bool:
    """Return whether `defaults.yaml`, or a file of any generation of the pipeline, requires approvals.

    A file with mistakes requires them if it contains the key at all. Raises PipelineInvalid for mistakes in
    `defaults.yaml`.
    """
    folder = app.settings.pipelines
    defaults = load_defaults(folder).airflow
    # Files, not plans: an approval is a rule of the project, and holds from the moment it is written.
    generations, errors = load_generations(folder, pipeline)
    own = [generation.airflow for generation in generations] or [AirflowSettings()]
    if any(settings.over(defaults).approve_promotion for settings in own):
        return True
    files = {error.problems[0].file for error in errors}
    return any(_is_of(file, pipeline) and _KEY in Path(file).read_text(errors="replace") for file in files)


def require_approval(app: App, stream: Stream, charge: Charge, approval: Approval | None) -> None:
    """Raise SettingsInvalid if an approval is needed and missing.

    Raises Halted if a promotion or a rollback was decided since the approval was given.
    """
    if approval is None:
        if needs_approval(app, stream.pipeline):
            dag_id = load_defaults(app.settings.pipelines).promotion_dag_id(stream.pipeline)
            raise SettingsInvalid(
                f"Promotions of {stream.pipeline} have to be approved: a pipeline file has `{_KEY}: true`",
                f"Trigger the DAG {dag_id} with the generation {stream.generation}, and approve it there; or "
                "name who has approved it: `--approved-by NAME`.",
            )
    elif approval.after not in (None, len(charge.promotions)):
        raise Halted(
            f"{approval.approved_by} has approved that {stream} takes charge after promotion "
            f"{approval.after} of {stream.pipeline}, but promotion {len(charge.promotions)} has since put "
            f"generation {charge.generation} in charge",
            "Trigger the promotion again, and look at what changes now.",
        )


def _is_of(file: str, pipeline: str) -> bool:
    """Return whether a file with mistakes belongs to a pipeline."""
    stream = stream_in_broken_file(file)
    return stream is not None and stream[0] == pipeline


@dataclass(frozen=True)
class Promoted:
    """The promotion that put a generation in charge. `is_new`: this call decided it."""

    promotion: Promotion
    is_new: bool


@dataclass(frozen=True)
class _Switch:
    """The decision that `stream` takes the place of the generation in charge. `charge`: as it is before."""

    stream: Stream
    charge: Charge
    run_id: str
    is_net: bool
    is_rollback: bool = False
    approved_by: str | None = None


def promote(
    app: App, stream: Stream, run_id: str, is_net: bool = False, approval: Approval | None = None
) -> Promoted:
    """Put a generation in charge of its pipeline: from then on it publishes, first all that it has withheld.

    `is_net`: in place of that only what differs from what consumers have. A generation that is in charge
    already publishes what is left. A run decides once: where it has promoted the generation, and another
    promotion came later, it is refused. Raises LeaseHeld while either generation is worked on;
    SettingsInvalid, Halted where there is nothing to promote, or no approval; and what publishing raises:
    before the decision the generation before stays in charge, after it the next run goes on.
    """
    charge = _charge_with(app, stream)
    _require_undecided(charge, stream, run_id)
    if charge.generation != stream.generation:
        require_approval(app, stream, charge, approval)
    approved_by = approval.approved_by[:300] if approval is not None else None
    return _put_in_charge(app, _Switch(stream, charge, run_id, is_net, approved_by=approved_by))


def rollback(app: App, pipeline: str, run_id: str, is_net: bool = False) -> Promoted:
    """Put the generation in charge again that the one in charge has replaced.

    It goes on where it stopped, so it may be behind the one that it replaces, unless `is_net`. Nobody has to
    approve it: it was in charge before. Going forward again is a promotion. Raises SettingsInvalid where no
    generation was in charge before, and else what `promote` raises.
    """
    charge = app.ledger.charge(pipeline)
    decided = charge.promotion_of(run_id)
    generation = decided.generation if decided is not None else charge.previous
    if generation is None:
        raise SettingsInvalid(
            f"No generation of {pipeline} was in charge before the one that is, or a rollback has gone back "
            "to the first one already",
            "To go forward again, promote a generation: `tidegate generation promote`.",
        )
    stream = Stream(pipeline, generation)
    require_generation(app, stream)
    _require_undecided(charge, stream, run_id)
    return _put_in_charge(app, _Switch(stream, charge, run_id, is_net, is_rollback=True))


def _put_in_charge(app: App, switch: _Switch) -> Promoted:
    stream = switch.stream
    is_new = switch.charge.generation != stream.generation
    with leased(app, stream, switch.run_id) as lease, app.clusters:
        if is_new:
            _decide(app, lease, switch)
        publish_decided(app, lease)
        lease.release()
    # The Delta tables follow without a lease: any later run brings them up to the head, too.
    plan = head_plan(app, app.ledger.head(stream))
    if plan is not None:
        catch_up_tables(app, stream, [planned_pipeline(plan)])
    return Promoted(app.ledger.charge(stream.pipeline).promotions[-1], is_new)


def replaced_stream(app: App, stream: Stream, run_id: str) -> Stream:
    """Return the generation in charge whose place another would take by a run.

    Raises SettingsInvalid where none is in charge, or there is no such other, or it is in charge already; and
    Halted where the run has decided before.
    """
    charge = _charge_with(app, stream)
    _require_undecided(charge, stream, run_id)
    if charge.generation == stream.generation:
        raise SettingsInvalid(f"{stream} is in charge already", "There is nothing to promote.")
    assert charge.generation is not None, "it is required"
    return Stream(stream.pipeline, charge.generation)


def _charge_with(app: App, stream: Stream) -> Charge:
    """Return which generation is in charge. Raise SettingsInvalid where none is, or there is no `stream`."""
    require_generation(app, stream)
    charge = app.ledger.charge(stream.pipeline)
    if charge.generation is None:
        raise SettingsInvalid(
            f"Each generation of {stream.pipeline} publishes what it decides: none is in charge",
            "`tidegate generation new` makes one that withholds it until it is promoted.",
        )
    return charge


def _require_undecided(charge: Charge, stream: Stream, run_id: str) -> None:
    """Raise Halted where a run has decided a promotion that is not the newest one, or of another generation.

    A task that is cleared, or tried again, then repeats a decision that was taken back since.
    """
    decided = charge.promotion_of(run_id)
    if decided is None:
        return
    newest = charge.promotions[-1]
    if (decided.number, decided.stream) == (newest.number, stream):
        return
    raise Halted(
        f"The run {run_id} has put {decided.stream} in charge already, as promotion {decided.number} of "
        f"{stream.pipeline}; now {newest.stream} is in charge, by promotion {newest.number}",
        "Nothing was changed. To promote a generation again, trigger a new run, and have it approved.",
    )


def _decide(app: App, lease: LeasedLedger, switch: _Switch) -> None:
    """Decide the promotion under both leases. `lease` is that of the generation that takes charge."""
    charge, stream = switch.charge, switch.stream
    assert charge.generation is not None, "there is one to replace"
    # Both leases: nobody decides a batch of either generation while its last batch is read here.
    with leased(app, Stream(stream.pipeline, charge.generation), switch.run_id) as replaced:
        # Consumers get all that the replaced generation has decided before anything of the new one.
        publish_decided(app, replaced)
        last, head = replaced.head(replaced.stream), lease.head(stream)
        require_ready(app, head, last, may_be_behind=switch.is_rollback and not switch.is_net)
        net = net_batch(app, lease, charge, switch.run_id) if switch.is_net else None
        promotion = Promotion(
            pipeline=stream.pipeline,
            number=len(charge.promotions) + 1,
            generation=stream.generation,
            # Net differences are the next batch of the generation, and replace all that it has withheld.
            first_seq=(head.seq if switch.is_net else charge.released(stream.generation)) + 1,
            replaced_seq=last.seq,
            is_net=switch.is_net,
            run_id=switch.run_id,
            is_rollback=switch.is_rollback,
            approved_by=switch.approved_by,
        )
        # The ledger checks both epochs and the replaced head again: a lease may be lost meanwhile.
        lease.promote(promotion, replaced.lease, net)
        replaced.release()
    logger.info("%s is in charge, %s no longer", stream, replaced.stream)


def require_ready(app: App, head: Head, replaced: Head, *, may_be_behind: bool) -> None:
    """Find what would make consumers wait for a generation, or keep it from publishing, while nothing is
    decided.
    """
    for unfinished in (head, replaced):
        require_no_erasure(unfinished.stream, unfinished.erasure)
    plan = require_caught_up(app, head, replaced, may_be_behind=may_be_behind)
    # Before the switch: afterwards consumers would get nothing from either generation.
    for sink in app.sinks(head.stream, planned_pipeline(plan)):
        sink.check_settings()
        sink.check_target()


def require_caught_up(app: App, head: Head, replaced: Head, *, may_be_behind: bool) -> Plan:
    """Return the plan of a generation's last batch. Raises Halted if it has none, or has not read what the
    generation in charge has.
    """
    unread = {} if may_be_behind else head.unread_of(replaced)
    plan = head_plan(app, head)
    if plan is None:
        raise Halted(
            f"{head.stream} has no batch yet", "Run it first: its pipeline file has a DAG of its own."
        )
    if unread:
        (topic, partition), missing = max(unread.items(), key=lambda item: item[1])
        raise Halted(
            f"{head.stream} has not read yet what {replaced.stream} has: {sum(unread.values())} offsets, "
            f"{missing} of them in {topic}[{partition}]",
            "Run it until it has caught up, then promote it.",
        )
    return plan
