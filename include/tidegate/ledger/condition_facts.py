"""What the ledger has of a stream's condition. It reads no grammar unless a batch lacks a sink."""

from __future__ import annotations

from dataclasses import replace

from tidegate.errors import LedgerUnavailable, TidegateError
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Plan, Stream, StreamStatus
from tidegate.ledger.stream_condition import StreamFacts
from tidegate.spec.document import longest_schedule_gap, output_count


def read_facts(ledger: LedgerReader, stream: Stream) -> StreamFacts:
    """Return what is recorded of a stream. Its file and its lag are known to others.

    Where the ledger has lost a plan's pipeline, that is one of the facts. Raises LedgerUnavailable.
    """
    statuses = ledger.stream_statuses([stream])
    if not statuses:
        return StreamFacts(stream)
    (status,) = statuses
    seqs = (status.head.seq, status.head.seq + 1)
    noted = [ledger.failure(stream, seq) for seq in seqs]
    facts = StreamFacts(
        stream,
        status,
        tuple(failure for failure in noted if failure is not None),
        is_withheld=ledger.charge(stream.pipeline).withholds(stream.generation),
    )
    try:
        return _with_plans(ledger, facts, status)
    except LedgerUnavailable:
        raise
    except TidegateError as error:
        return replace(facts, unreadable=error)


def _with_plans(ledger: LedgerReader, facts: StreamFacts, status: StreamStatus) -> StreamFacts:
    stream, seq = facts.stream, status.head.seq
    decided = ledger.plan(stream, seq) if seq else None
    if decided is not None:
        whose = f"batch {seq} of {stream}"
        facts = replace(
            facts,
            unpublished=_unpublished(ledger, decided, whose),
            schedule_gap=longest_schedule_gap(decided.spec_compiled, whose),
        )
    planned = ledger.plan(stream, seq + 1)
    if planned is None:
        return facts
    return replace(facts, open_plan=planned, open_attempt=ledger.attempt(stream, planned.seq))


def _unpublished(ledger: LedgerReader, plan: Plan, whose: str) -> tuple[str, ...]:
    if len(ledger.publications(plan.stream, plan.seq)) >= output_count(plan.spec_compiled, whose):
        return ()
    from tidegate.ledger.planned import lacking_sinks  # late: it reads the grammar

    return tuple(lacking_sinks(ledger, plan))
