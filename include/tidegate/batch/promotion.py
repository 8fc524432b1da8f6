"""Generations side by side: one is in charge and publishes, the others withhold what they decide.

Promotion is one compare-and-set in the ledger (`LeasedLedger.promote`), made under the leases of both
generations, and only when all that the one before has decided is out. A publisher of it that sleeps until
later finds each sink at its last batch, and is fenced there; and what that generation decides afterwards is
withheld, since its batch comes after the last that the promotion names. What the new one has withheld goes
out next, by whoever comes first: this process, or the generation's next run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tidegate.app.lease import leased
from tidegate.app.root import App, stream_of
from tidegate.app.tables import catch_up_tables
from tidegate.batch.approval import Approval, require_approval
from tidegate.batch.edits import head_plan
from tidegate.batch.generations import streams_without_file
from tidegate.batch.net import net_batch
from tidegate.batch.publish import publish_decided
from tidegate.errors import Halted, SettingsInvalid
from tidegate.ledger import Charge, Head, LeasedLedger, Promotion, Stream
from tidegate.ledger.planned import lacking_sinks, planned_pipeline
from tidegate.spec import Pipeline

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Promoted:
    """The promotion that put a generation in charge. `is_new`: this call decided it."""

    promotion: Promotion
    is_new: bool


def open_generation(app: App, pipeline: Pipeline) -> int:
    """Make the generation of a pipeline file beside the one in charge, which is returned. It begins empty.

    From the first time on that this is done for a pipeline, only its generation in charge publishes. Raises
    SettingsInvalid where there is no generation to stand beside, several publish, or the number was used.
    """
    stream = stream_of(pipeline)
    in_charge = _in_charge(app, stream)
    app.ledger.open_generation(stream, in_charge)
    return in_charge


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
    plan = head_plan(app, app.ledger.head(stream))
    if plan is not None:
        catch_up_tables(app, stream, [planned_pipeline(plan)])
    return Promoted(app.ledger.charge(stream.pipeline).promotions[-1], is_new)


def replaced_stream(app: App, stream: Stream, run_id: str) -> Stream:
    """Return the generation in charge whose place another would take by a run.

    Raise SettingsInvalid where none is in charge, or there is no such other, or it is in charge already; and
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
    """The switch. `lease`: of the generation that takes charge."""
    charge, stream = switch.charge, switch.stream
    assert charge.generation is not None, "there is one to replace"
    with leased(app, Stream(stream.pipeline, charge.generation), switch.run_id) as replaced:
        publish_decided(app, replaced)
        last, head = replaced.head(replaced.stream), lease.head(stream)
        require_ready(app, head, last, may_be_behind=switch.is_rollback and not switch.is_net)
        net = net_batch(app, lease, charge, switch.run_id) if switch.is_net else None
        promotion = Promotion(
            pipeline=stream.pipeline,
            number=len(charge.promotions) + 1,
            generation=stream.generation,
            first_seq=(head.seq if switch.is_net else charge.released(stream.generation)) + 1,
            replaced_seq=last.seq,
            is_net=switch.is_net,
            run_id=switch.run_id,
            is_rollback=switch.is_rollback,
            approved_by=switch.approved_by,
        )
        lease.promote(promotion, replaced.lease, net)
        replaced.release()
    logger.info("%s is in charge, %s no longer", stream, replaced.stream)


def require_ready(app: App, head: Head, replaced: Head, *, may_be_behind: bool) -> None:
    """Find what would make consumers wait for a generation, or keep it from publishing, while nothing is
    decided.
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
    for sink in app.sinks(head.stream, planned_pipeline(plan)):
        sink.check_settings()
        sink.check_target()


def require_generation(app: App, stream: Stream) -> None:
    """Raise SettingsInvalid where there is no such generation."""
    if stream not in app.ledger.streams():
        raise SettingsInvalid(
            f"The ledger has no generation {stream.generation} of a pipeline {stream.pipeline}",
            "`tidegate generation list` shows them all.",
        )


def _in_charge(app: App, stream: Stream) -> int:
    """The generation that a new one is to stand beside."""
    siblings = [
        other for other in app.ledger.streams() if other.pipeline == stream.pipeline and other != stream
    ]
    charge = app.ledger.charge(stream.pipeline)
    if charge.generation is not None:
        return charge.generation
    if not siblings:
        raise SettingsInvalid(
            f"No generation of {stream.pipeline} was ever run, so there is none to stand beside",
            f"Run this one: tidegate run {stream.pipeline}.",
        )
    *older, newest = siblings
    without_file = streams_without_file(app)
    still_open = [other for other in older if other not in without_file or _is_unpublished(app, other)]
    if still_open:
        raise SettingsInvalid(
            f"{', '.join(map(str, still_open))} and {newest} publish, and only one can be in charge",
            "Let the older one publish what it has decided, and remove its pipeline file.",
        )
    return newest.generation


def _is_unpublished(app: App, stream: Stream) -> bool:
    plan = head_plan(app, app.ledger.head(stream))
    return plan is not None and bool(lacking_sinks(app.ledger, plan))


__all__ = [
    "Promoted",
    "open_generation",
    "promote",
    "replaced_stream",
    "require_generation",
    "require_ready",
    "rollback",
]
