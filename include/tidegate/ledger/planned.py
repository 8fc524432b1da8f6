"""Pipelines as batches were planned with them. Today's pipeline files and grammar have no effect on them."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.ledger.promotions import Charge
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Plan, Stream
from tidegate.model.compiled import read_compiled
from tidegate.model.pipeline import Pipeline


def planned_pipeline(plan: Plan) -> Pipeline:
    """Return the pipeline that the batch was planned with.

    Raises PlanUnreadable if this version of tidegate cannot read its compiled form.
    """
    return read_compiled(plan.spec_compiled, plan.spec_text, f"batch {plan.seq} of {plan.stream}")


def planned_pipelines(ledger: LedgerReader, stream: Stream) -> list[Pipeline]:
    """Return each version of the pipeline that batches were planned with, the newest last.

    Raises PlanUnreadable if this version of tidegate cannot read one of them.
    """
    return [read_compiled(spec.compiled, spec.text, str(stream)) for spec in ledger.planned_specs(stream)]


def lacking_sinks(ledger: LedgerReader, plan: Plan) -> list[str]:
    """Return the sinks that must get a committed batch and, by the ledger, do not have it; none if it is
    withheld.

    Raises PlanUnreadable if this version of tidegate cannot read the batch's pipeline.
    """
    charge = ledger.charge(plan.stream.pipeline)
    if not charge.goes_out(plan.stream.generation, plan.seq):
        return []
    return sinks_to_send(plan, ledger.publications(plan.stream, plan.seq), charge)


def sinks_to_send(plan: Plan, published: Collection[str], charge: Charge) -> list[str]:
    """Return the result of `lacking_sinks` for a batch whose publications and charge were read before."""
    if not charge.goes_out(plan.stream.generation, plan.seq):
        return []
    return _sinks_without(plan, {*published, *inherited_sinks(plan, charge)})


def unpublished_sinks(ledger: LedgerReader, plan: Plan) -> list[str]:
    """Return the sinks that do not have the batch by the ledger, without asking which generation is in
    charge.

    Raises PlanUnreadable if this version of tidegate cannot read the batch's pipeline.
    """
    done = {*ledger.publications(plan.stream, plan.seq)}
    if plan.reused is not None:
        done.update(inherited_sinks(plan, ledger.charge(plan.stream.pipeline)))
    return _sinks_without(plan, done)


def _sinks_without(plan: Plan, done: Collection[str]) -> list[str]:
    return [sink.name for sink in planned_pipeline(plan).outputs if sink.name not in done]


def inherited_sinks(plan: Plan, charge: Charge) -> tuple[str, ...]:
    """Return the sinks that have the batch from the generation whose decisions it reuses: that one has
    published the batch, and nothing else came between it and this generation.
    """
    if plan.reused is None:
        return ()
    origin = plan.reused.generation
    has_sent = charge.replaced_by(plan.stream.generation) == origin and charge.goes_out(origin, plan.seq)
    return plan.reused.sinks if has_sent else ()
