"""Read the facts from which the condition of a stream is derived.

The grammar of pipeline files is imported only if a batch lacks a sink, so that a page over many streams does
not pay for that import.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.errors import LedgerUnavailable, TidegateError
from tidegate.ledger.reader import LedgerReader
from tidegate.ledger.records import Plan, Stream, StreamStatus
from tidegate.ledger.stream_condition import StreamFacts
from tidegate.spec.document import longest_schedule_gap, output_count


def read_facts(ledger: LedgerReader, stream: Stream) -> StreamFacts:
    """Return the recorded facts of a stream, without its file and its lag, which the caller adds.

    If the ledger has lost the pipeline of a plan, the error is one of the facts (`unreadable`). Raises
    LedgerUnavailable if the database does not answer.
    """
    statuses = ledger.stream_statuses([stream])
    if not statuses:
        return StreamFacts(stream)
    (status,) = statuses
    seqs = (status.head.seq, status.head.seq + 1)
    failures = [ledger.failure(stream, seq) for seq in seqs]
    facts = StreamFacts(
        stream,
        status,
        tuple(failure for failure in failures if failure is not None),
        is_withheld=ledger.charge(stream.pipeline).withholds(stream.generation),
    )
    try:
        return _with_plans(ledger, facts, status)
    # A database that does not answer says nothing about the stream; all other errors are facts about it.
    except LedgerUnavailable:
        raise
    except TidegateError as error:
        return replace(facts, unreadable=error)


def _with_plans(ledger: LedgerReader, facts: StreamFacts, status: StreamStatus) -> StreamFacts:
    stream, seq = facts.stream, status.head.seq
    decided = ledger.plan(stream, seq) if seq else None
    if decided is not None:
        owner = f"batch {seq} of {stream}"
        facts = replace(
            facts,
            unpublished=_unpublished(ledger, decided, owner),
            schedule_gap=longest_schedule_gap(decided.spec_compiled, owner),
        )
    planned = ledger.plan(stream, seq + 1)
    if planned is None:
        return facts
    return replace(facts, open_plan=planned, open_attempt=ledger.attempt(stream, planned.seq))


def _unpublished(ledger: LedgerReader, plan: Plan, owner: str) -> tuple[str, ...]:
    # Counting decides the usual case without the grammar.
    if len(ledger.publications(plan.stream, plan.seq)) >= output_count(plan.spec_compiled, owner):
        return ()
    from tidegate.ledger.planned import lacking_sinks  # late: it reads the grammar

    return tuple(lacking_sinks(ledger, plan))
