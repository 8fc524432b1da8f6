"""Pipelines as batches were planned with them, whatever their files and the grammar say now."""

from __future__ import annotations

from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Plan, Stream
from tidegate.spec import Pipeline, read_compiled


def planned_pipeline(plan: Plan) -> Pipeline:
    """The pipeline as it was when the batch was planned. Raises PlanUnreadable."""
    return read_compiled(plan.spec_compiled, plan.spec_text, f"batch {plan.seq} of {plan.stream}")


def planned_pipelines(ledger: LedgerReader, stream: Stream) -> list[Pipeline]:
    """The pipeline as each batch was planned with it, each version once, the newest last.

    Raises PlanUnreadable.
    """
    return [read_compiled(spec.compiled, spec.text, str(stream)) for spec in ledger.planned_specs(stream)]


def lacking_sinks(ledger: LedgerReader, plan: Plan) -> list[str]:
    """Return the sinks that are to have a committed batch, and of which the ledger does not know it.

    Raises PlanUnreadable.
    """
    if not ledger.charge(plan.stream.pipeline).goes_out(plan.stream.generation, plan.seq):
        return []
    return unpublished_sinks(ledger, plan)


def unpublished_sinks(ledger: LedgerReader, plan: Plan) -> list[str]:
    """Return the same of a batch that goes out."""
    done = ledger.publications(plan.stream, plan.seq)
    return [sink.name for sink in planned_pipeline(plan).outputs if sink.name not in done]
