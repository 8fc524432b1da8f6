"""Rows of the ledger's tables, as records and back. A field of a record is a column of the same name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Row, Select, Table, and_, func, select, update

from tidegate.errors import Halted
from tidegate.ledger import schema
from tidegate.ledger.promotions import Charge, Promotion
from tidegate.ledger.records import ManifestRef, Plan, Stream

Record = TypeVar("Record")


# SQLAlchemy's conditions are immutable, and to build one takes longer than many of the queries that have it.
@lru_cache(maxsize=1024)
def in_stream(table: Table, stream: Stream) -> Any:
    """Return the SQL condition that a row belongs to the stream."""
    return and_(table.c.pipeline == stream.pipeline, table.c.generation == stream.generation)


def same_stream(left: Table, right: Table) -> Any:
    """Return the SQL condition that rows of two tables belong to the same stream."""
    return and_(left.c.pipeline == right.c.pipeline, left.c.generation == right.c.generation)


def rows_of(table: Table, stream: Stream, *conditions: Any) -> Select[Any]:
    """Return the query for the rows of a stream that fulfil all conditions."""
    return select(table).where(in_stream(table, stream), *conditions)


def greatest(connection: Connection, number: Column[Any], stream: Stream, *conditions: Any) -> int:
    """Return the greatest number in a column of a stream's rows that fulfil all conditions; 0 if none."""
    query = select(func.max(number)).where(in_stream(number.table, stream), *conditions)
    return connection.execute(query).scalar() or 0


def lock_head(connection: Connection, stream: Stream) -> None:
    """Lock the head's row with an update that has no effect, so that two processes decide one by one."""
    heads = schema.heads
    connection.execute(update(heads).where(in_stream(heads, stream)).values(seq=heads.c.seq))


def stream_key(stream: Stream) -> dict[str, Any]:
    """Return the columns that say to which stream a row belongs."""
    return {"pipeline": stream.pipeline, "generation": stream.generation}


def stream_in(row: Row[Any]) -> Stream:
    """Return the stream to which a row belongs."""
    return Stream(row.pipeline, row.generation)


def record_in(kind: type[Record], row: Row[Any]) -> Record:
    """Return the record that a row stores; its stream and its manifest are several columns.

    Args:
        kind: a dataclass of `records` or `facts`.
        row: has a column for each field, and may have others.
    """
    several: dict[str, Callable[[Row[Any]], Any]] = {"stream": stream_in, "manifest": manifest_in}
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: several[name](row) if name in several else row._mapping[name] for name in names})


def columns_of(record: Any) -> dict[str, Any]:
    """Return the columns that store a record, without those of its stream: the inverse of `record_in`."""
    columns = {name: value for name, value in vars(record).items() if name != "stream"}
    manifest = columns.pop("manifest", None)
    return columns if manifest is None else columns | manifest_out(manifest)


def plan_in(row: Row[Any]) -> Plan:
    """Return the plan of a row of `plans_with_pipelines`, exactly as it was written.

    Raises Halted if the ledger lacks the pipeline that the batch was planned with: a plan is never completed
    from the current pipeline file.
    """
    if row.spec_text is None or row.spec_compiled is None:
        raise Halted(
            f"The ledger does not have the pipeline that batch {row.seq} of {stream_in(row)} was planned "
            "with",
            "Restore the table tidegate_pipelines from a backup of the ledger.",
        )
    return record_in(Plan, row)


def plan_out(plan: Plan) -> dict[str, Any]:
    """Return a plan's columns, without those of the stream.

    The pipeline is a row of its own in `pipelines`: most plans of a stream have the same one.
    """
    columns = columns_of(plan) | {"spec_hash": plan.spec.hash}
    del columns["spec_text"], columns["spec_compiled"]
    return columns


def plans_with_pipelines() -> Select[Any]:
    """Return a query for plans, each with text and compiled form of its pipeline; null if the ledger lost the
    pipeline.
    """
    plans, pipelines = schema.plans, schema.pipelines
    same = and_(same_stream(pipelines, plans), pipelines.c.hash == plans.c.spec_hash)
    texts = pipelines.c.text.label("spec_text"), pipelines.c.compiled.label("spec_compiled")
    return select(plans, *texts).select_from(plans.outerjoin(pipelines, same))


def manifest_in(row: Row[Any], name: str = "name") -> ManifestRef:
    """Return the manifest of a row.

    Args:
        name: the column that has the manifest's name.
    """
    columns = (row.manifest_bytes, row.manifest_digest, row.file_rows, row.file_bytes)
    return ManifestRef(row._mapping[name], *columns)


def manifest_out(manifest: ManifestRef, name: str = "name") -> dict[str, Any]:
    """Return a manifest's columns.

    Args:
        name: the column for the manifest's name.
    """
    return {
        name: manifest.name,
        "manifest_bytes": manifest.bytes,
        "manifest_digest": manifest.digest,
        "file_rows": manifest.file_rows,
        "file_bytes": manifest.file_bytes,
    }


def promotions_of(pipeline: str) -> Select[Any]:
    """Return the query for the promotions of a pipeline, oldest first: the rows that `charge_in` takes."""
    table = schema.promotions
    return select(table).where(table.c.pipeline == pipeline).order_by(table.c.number)


def charge_in(rows: Iterable[Row[Any]]) -> Charge:
    """Return which generations are and were in charge, from the rows of `promotions_of`."""
    return Charge(tuple(record_in(Promotion, row) for row in rows))
