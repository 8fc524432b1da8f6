"""What quality suites have found of a batch, an expectation a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select

from tidegate.ledger import schema
from tidegate.ledger.records import Stream
from tidegate.ledger.rows import of, storable

MOST_TRIES = 10
"""How many tries of a batch are kept, the newest."""


@dataclass(frozen=True)
class QualityResult:
    """How an expectation went in one try to validate a batch.

    `try_number`, `check_number` and `expectation` count from 1: the tries of the batch, the checks of its
    pipeline, and the expectations of the suite, whose text has `suite_digest` (SHA-256, hex). `target` is
    what the check looks at. `failing`: some rows that do not meet it, at most 20. `page`: where Data Docs
    show it. What the rest means, `quality.ExpectationResult` says.
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
    """Of all tries that are kept, in their order, each by check and expectation."""
    table = schema.quality
    query = select(table).where(of(table, stream), table.c.seq == seq)
    rows = connection.execute(query.order_by(table.c.try_number, table.c.check_number, table.c.expectation))
    return [_result(row) for row in rows]


def add_quality(
    connection: Connection, stream: Stream, seq: int, results: Sequence[QualityResult], now: float
) -> None:
    """Keep a try's results, and let go of tries that are too many. `now`: epoch seconds."""
    table = schema.quality
    key = {"pipeline": stream.pipeline, "generation": stream.generation, "seq": seq, "checked_at": now}
    rows = [key | _row(result) for result in results]
    if rows:
        connection.execute(insert(table), rows)
        oldest = results[0].try_number - MOST_TRIES
        superseded = and_(of(table, stream), table.c.seq == seq, table.c.try_number <= oldest)
        connection.execute(delete(table).where(superseded))


def _row(result: QualityResult) -> dict[str, Any]:
    texts = {name: storable(text) for name, text in asdict(result).items() if isinstance(text, str)}
    failing = [{storable(name): storable(text) for name, text in row.items()} for row in result.failing]
    return vars(result) | texts | {"column_names": list(result.column_names), "failing": failing}


def _result(row: Any) -> QualityResult:
    fields = {name: getattr(row, name) for name in QualityResult.__dataclass_fields__}
    return QualityResult(**fields | {"column_names": tuple(row.column_names), "failing": tuple(row.failing)})
