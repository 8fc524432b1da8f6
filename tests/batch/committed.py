"""A stream whose batches were computed by hand: real ledger, lake and sinks, without Kafka and Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import create_engine, text, update

from tidegate.app import App
from tidegate.app.lease import claim_folder
from tidegate.batch import publish_batch
from tidegate.kernel.keys import key_hashes
from tidegate.ledger import Attempt, LeasedLedger, OffsetRange, Plan, Stream, schema
from tidegate.ledger.records import ReusedBatch
from tidegate.ledger.rows import manifest_out
from tidegate.model.compiled import compile_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.storage import datafile
from tidegate.storage.datafile import RowWriter
from tidegate.storage.manifest import DataFile, Kind, Manifest, manifest_of
from tidegate.yaml.load import load_pipeline

PIPELINE = """\
pipeline: visitors
source:
  topics: [events]
  format: json
  columns: "customerId bigint, n int"
  key: [customerId]
stages:
  - {{name: first, select: {{n: n}}, reduce: latest, emit: {{on: update}}}}
  - {{name: second, select: {{m: n}}, reduce: latest, emit: {{on: change}}}}
sinks:
{sinks}
"""
Row = tuple[str, int | None]


class Committed:
    """A pipeline with two stages. `commit` decides a batch whose outboxes are given, stage by stage."""

    run_suffix = ""  # of the runs' ids

    def __init__(
        self,
        folder: Path,
        sinks: str,
        sql: str = "",
        kafka: str = "",
        ledger: str = "",
        http: str = "",
        iceberg: str = "",
        tables: str = "",
        clickhouse: str = "",
    ) -> None:
        self.folder = folder
        self.file = folder / "pipelines" / "visitors.yaml"
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(PIPELINE.format(sinks=sinks))
        self.sql = sql
        self.clock_ms: int | None = None  # of plans; None: a second after the other
        self.suffix = "0000000a"  # of the names of attempts
        self.states: dict[str, pa.Table] = {}  # what batches change, stage by stage
        self.reused: ReusedBatch | None = None  # of plans
        self.outbox_files = 1  # of each stage and batch: what so many tasks would write
        self.environment = {
            "TIDEGATE_HOME": str(folder),
            "TIDEGATE_PIPELINES": str(self.file.parent),
            "TIDEGATE_LEDGER": ledger or f"sqlite:///{folder}/l.db",
            **{
                name: value
                for name, value in {
                    "TIDEGATE_SQL": sql,
                    "TIDEGATE_KAFKA": kafka,
                    "TIDEGATE_HTTP": http,
                    "TIDEGATE_ICEBERG": iceberg,
                    "TIDEGATE_TABLES": tables,
                    "TIDEGATE_CLICKHOUSE": clickhouse,
                }.items()
                if value
            },
        }
        self.app = App.from_environment(self.environment)
        self.stream = Stream("visitors", 1)
        self.lease: LeasedLedger = self.app.ledger.acquire(self.stream, "test")
        claim_folder(self.app, self.stream)

    @property
    def pipeline(self) -> Pipeline:
        return load_pipeline(self.file)

    def planned(self, seq: int) -> Plan:
        """A plan that reads nothing, and is not in the ledger yet."""
        loaded = self.pipeline
        return Plan(
            self.stream,
            seq,
            f"run-{seq}{self.run_suffix}",
            clock_ms=self.clock_ms or seq * 1000,
            believed_until_ms=seq * 1000,
            ranges=(OffsetRange("events", 0, seq, seq),),
            topic_ids={"events": "id"},
            spec_text=loaded.text,
            spec_compiled=compile_pipeline(loaded),
            reused=self.reused,
        )

    def compute(self, seq: int, of_stages: Mapping[str, Sequence[Row]], **counts: float) -> Plan:
        """A planned and computed batch; `counts` are the first stage's, beside what it emitted."""
        self.lease = self.app.ledger.acquire(self.stream, "test")  # a step may have raised the epoch
        claim_folder(self.app, self.stream)
        plan = self.planned(seq)
        self.lease.add_plan(plan)
        written = self.written(seq, self.attempt_name(seq), of_stages)
        manifest = self.app.write_manifest(self.stream, written)
        emitted: dict[str, dict[str, float]] = {
            stage: {"emitted": len(rows)} for stage, rows in of_stages.items()
        }
        emitted["first"] = emitted.get("first", {}) | counts
        times = {"first": {("events", 0): seq * 1000 - 500}}
        self.lease.add_attempt(Attempt(self.stream, seq, manifest, {"": {"read": 1}, **emitted}, times=times))
        return plan

    def attempt_name(self, seq: int) -> str:
        """Return the name of an attempt; a batch always has the same."""
        return f"{seq:010d}-000001-{self.suffix}"

    def written(self, seq: int, name: str, of_stages: Mapping[str, Sequence[Row]]) -> Manifest:
        """Files of an attempt or a snapshot: outboxes and state, by stage; without a manifest yet."""
        tables = [
            ("outbox", stage, part)
            for stage, rows in of_stages.items()
            for part in _by_hash(_outbox(rows, "n" if stage == "first" else "m", seq), self.outbox_files)
        ]
        tables += [("state", stage, rows) for stage, rows in self.states.items()]
        return manifest_of(name, seq, [file for table in tables for file in self._files(name, *table)])

    def add_file(self, seq: int, kind: Kind, stage: str, rows: pa.Table) -> None:
        """More rows of a batch that is committed, as if its attempt had written them."""
        reference = dict(self.app.ledger.committed(self.stream))[seq]
        manifest = self.app.manifest(self.stream, reference)
        files = [*manifest.files, *self._files(manifest.name, kind, stage, rows)]
        written = self.app.write_manifest(self.stream, manifest_of(manifest.name, seq, files))
        with self.app.ledger._engine.begin() as connection:
            for table, column in ((schema.attempts, "name"), (schema.commits, "attempt")):
                connection.execute(
                    update(table).where(table.c.seq == seq).values(manifest_out(written, column))
                )

    def _files(self, name: str, kind: Kind, stage: str, rows: pa.Table) -> list[DataFile]:
        lake = self.app.lake(self.stream)
        writer = RowWriter(lake.store, f"{lake.files(kind, stage, name)}/{uuid4().hex}.parquet", kind, stage)
        with writer:
            for batch in rows.combine_chunks().to_batches(datafile.ROW_GROUP_ROWS):
                writer.write(batch)
        return [writer.file] if writer.file is not None else []

    def commit(self, seq: int, of_stages: Mapping[str, Sequence[Row]], **counts: float) -> Plan:
        plan = self.compute(seq, of_stages, **counts)
        attempt = self.lease.attempt(self.stream, seq)
        assert attempt is not None
        self.lease.commit(plan, replace(attempt, validated=True))
        return plan

    def publish(self, seq: int) -> dict[str, int]:
        plan = self.app.ledger.plan(self.stream, seq)
        assert plan is not None
        return publish_batch(self.app, plan, "test")

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        engine = create_engine(self.sql)
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []


def _by_hash(outbox: pa.Table, files: int) -> list[pa.Table]:
    """Return the parts of an outbox for so many files, each with a range of hashes."""
    if files == 1:
        return [outbox]
    hashes = sorted(set(outbox["hash"].to_pylist()))
    ranges = [hashes[len(hashes) * at // files : len(hashes) * (at + 1) // files] for at in range(files)]
    return [outbox.filter(pc.is_in(outbox["hash"], pa.array(of_file))) for of_file in ranges if of_file]


def _outbox(rows: Sequence[Row], column: str, seq: int) -> pa.Table:
    count = len(rows)
    values = [None if value is None else {column: value} for _, value in rows]
    keys = [key for key, _ in rows]
    nothing = pa.nulls(count, pa.int64())
    return pa.table(
        {
            "hash": key_hashes(pa.array(keys, pa.string())),
            "key": pa.array(keys, pa.string()),
            "ordinal": pa.array(range(count), pa.int64()),
            "reason": pa.array(["new"] * count),
            "value": pa.array(values, pa.struct([(column, pa.int32())])),
            "payload": pa.array([value and json.dumps(value) for value in values], pa.string()),
            "key_columns": pa.array(
                [{"customerId": len(key)} for key in keys], pa.struct([("customerId", pa.int64())])
            ),
            "window_start": nothing,
            "window_end": nothing,
            "timestamp": pa.array(range(count), pa.int64()),
            "at": pa.array(range(count), pa.int64()),
            "source": pa.array([f"events/0/{seq}{at}" for at in range(count)]),
            "seq": pa.array([seq] * count, pa.int64()),
        }
    )
