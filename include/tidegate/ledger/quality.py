"""Store and read the results of quality suites: one row per expectation and try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select

from tidegate.ledger import schema
from tidegate.ledger.records import Stream
from tidegate.ledger.rows import in_stream, storable

MOST_TRIES = 10
"""The number of tries of a batch whose results are stored; older tries are deleted."""


@dataclass(frozen=True)
class QualityResult:
    """The result of one expectation in one try to validate a batch.

    `quality.ExpectationResult` describes the fields that are not listed here.

    Args:
        attempt: the name of the attempt.
        try_number: counts the tries of the batch from 1.
        check_number: counts the checks of its pipeline from 1.
        expectation: counts the expectations of the suite from 1.
        suite_digest: the SHA-256 of the suite's text, in hexadecimal.
        target: the data that the check evaluates.
        failing: at most 20 rows that break the expectation.
        page: the page of Data Docs with the result.
    """

    attempt: str
    try_number: int
    check_number: int
    expectation: int
    suite: str
    suite_digest: str
    target: str
    type: str
    column_names: tuple[str, ...]
    severity: str
    passed: bool
    observed: str
    evaluated_rows: int | None
    unexpected_rows: int | None
    unexpected_share: float | None
    failing: tuple[Mapping[str, str], ...]
    error: str | None
    note: str
    page: str | None


def quality_of(connection: Connection, stream: Stream, seq: int) -> list[QualityResult]:
    """Return the results of all stored tries of a batch, ordered by try, check and expectation."""
    table = schema.quality
    query = select(table).where(in_stream(table, stream), table.c.seq == seq)
    rows = connection.execute(query.order_by(table.c.try_number, table.c.check_number, table.c.expectation))
    return [_result(row) for row in rows]


def add_quality(
    connection: Connection, stream: Stream, seq: int, results: Sequence[QualityResult], now: float
) -> None:
    """Store the results of a try, and delete those of tries before the newest `MOST_TRIES`.

    Args:
        connection: a transaction that holds the epoch.
        seq: the batch.
        results: all results of one try.
        now: epoch seconds.
    """
    table = schema.quality
    key = {"pipeline": stream.pipeline, "generation": stream.generation, "seq": seq, "checked_at": now}
    rows = [key | _row(result) for result in results]
    if rows:
        connection.execute(insert(table), rows)
        oldest = results[0].try_number - MOST_TRIES
        superseded = and_(in_stream(table, stream), table.c.seq == seq, table.c.try_number <= oldest)
        connection.execute(delete(table).where(superseded))


def _row(result: QualityResult) -> dict[str, Any]:
    texts = {name: storable(text) for name, text in asdict(result).items() if isinstance(text, str)}
    failing = [{storable(name): storable(text) for name, text in row.items()} for row in result.failing]
    return vars(result) | texts | {"column_names": list(result.column_names), "failing": failing}


def _result(row: Any) -> QualityResult:
    fields = {name: getattr(row, name) for name in QualityResult.__dataclass_fields__}
    return QualityResult(**fields | {"column_names": tuple(row.column_names), "failing": tuple(row.failing)})
