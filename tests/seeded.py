"""A ledger with a past: pipelines whose batches were never computed, but noted as if they had been."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Connection, insert

from tests.conftest import REPOSITORY
from tidegate.app import App, stream_of
from tidegate.app.lease import claim_folder
from tidegate.errors import TidegateError
from tidegate.kernel.keys import key_hash
from tidegate.ledger import Attempt, LeasedLedger, OffsetRange, Plan, Stream, schema
from tidegate.ledger.rows import columns_of, in_stream, manifest_out, plan_out
from tidegate.model.compiled import compile_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.storage import attempt_name
from tidegate.storage.datafile import RowWriter
from tidegate.storage.manifest import DataFile, manifest_of
from tidegate.storage.schema import outbox_schema
from tidegate.yaml.load import load_pipeline

PIPELINES = REPOSITORY / "include" / "pipelines"
MINUTE = 60.0


@dataclass
class Seeded:
    """A home of its own with the sample pipelines that are asked for. Time goes on by `now` alone."""

    home: Path
    now: float = 1_767_225_600.0
    offsets: int = 1000
    """That each batch reads."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of each batch as a whole, beside those of its steps."""
    environment: dict[str, str] = field(default_factory=dict)
    """The variables that are given come before those of a home of its own."""
    _claimed: set[Stream] = field(default_factory=set)

    def __post_init__(self) -> None:
        (self.home / "pipelines").mkdir(parents=True, exist_ok=True)
        own = {
            "TIDEGATE_HOME": str(self.home),
            "TIDEGATE_PIPELINES": str(self.home / "pipelines"),
            "TIDEGATE_EXPECTATIONS": str(REPOSITORY / "include" / "expectations"),
            "TIDEGATE_LEDGER": f"sqlite:///{self.home / 'ledger.db'}",
        }
        self.environment = own | self.environment
        self.app = App.from_environment(self.environment)
        self.app.ledger._now = lambda: self.now

    def add_sample(self, name: str, file: str | None = None, edit: Callable[[str], str] = str) -> Pipeline:
        """A sample pipeline in the folder, without a schedule."""
        text = (PIPELINES / f"{name}.yaml").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("schedule:")]
        path = self.home / "pipelines" / f"{file or name}.yaml"
        path.write_text(edit("\n".join(lines)) + "\n")
        return load_pipeline(path)

    def lease(self, pipeline: Pipeline) -> LeasedLedger:
        stream = stream_of(pipeline)
        if stream not in self._claimed:
            claim_folder(self.app, stream)
            self._claimed.add(stream)
        return self.app.ledger.acquire(stream, "seed")

    def plan(self, pipeline: Pipeline, seq: int) -> Plan:
        """Return a plan that is not in the ledger yet: the next offsets of one partition."""
        start = (seq - 1) * self.offsets
        return Plan(
            stream_of(pipeline),
            seq,
            f"run-{seq}",
            clock_ms=round(self.now * 1000),
            believed_until_ms=round(self.now * 1000),
            ranges=(OffsetRange(pipeline.sources["source"].topics[0], 0, start, start + self.offsets),),
            topic_ids={pipeline.sources["source"].topics[0]: "id"},
            spec_text=pipeline.text,
            spec_compiled=compile_pipeline(pipeline),
        )

    def attempt(
        self,
        plan: Plan,
        pipeline: Pipeline,
        counts: Mapping[str, float],
        quarantine: Sequence[Mapping[str, object]] = (),
        outbox: Sequence[Mapping[str, object]] = (),
        state: Sequence[DataFile] = (),
    ) -> Attempt:
        """An attempt whose stages have all counted the same, with the rows of its quarantine and outbox, and
        files of its state that are written already.
        """
        name = attempt_name(plan.seq, plan.seq)
        files = [*state, *([self._quarantine(plan, name, quarantine)] if quarantine else [])]
        files += [self._outbox(plan, name, pipeline.stages[-1].name, outbox)] if outbox else []
        manifest = self.app.write_manifest(plan.stream, manifest_of(name, plan.seq, files))
        whole = {"read": plan.span, "quarantined": len(quarantine)}
        stages = {stage.name: dict(counts) for stage in pipeline.stages}
        # as in a batch: the first stage accounts for the records that could not be used
        stages[pipeline.stages[0].name].setdefault("quarantined", len(quarantine))
        times = {pipeline.stages[0].name: {(plan.ranges[0].topic, 0): plan.clock_ms - 5_000}}
        return Attempt(plan.stream, plan.seq, manifest, {"": whole, **stages}, True, times)

    def batch(
        self,
        pipeline: Pipeline,
        seq: int,
        counts: Mapping[str, float],
        quarantine: Sequence[Mapping[str, object]] = (),
        passed: bool = True,
        outbox: Sequence[Mapping[str, object]] = (),
        state: Sequence[DataFile] = (),
    ) -> None:
        """A batch that is committed and published, half a minute after it was planned."""
        lease = self.lease(pipeline)
        plan = self.plan(pipeline, seq)
        lease.add_plan(plan)
        attempt = self.attempt(plan, pipeline, counts, quarantine, outbox, state)
        lease.add_attempt(attempt)
        self.now += MINUTE / 2
        lease.commit(plan, attempt)
        for sink in pipeline.sinks:
            lease.add_publication(seq, sink.name, int(counts.get("emitted", 0)))
        seconds = {"plan": 0.2, "compute": 3 + seq % 5 / 4, "validate": 0.4, "commit": 0.1, "publish": 0.6}
        lease.set_metrics(seq, "", {f"seconds.{step}": value for step, value in seconds.items()})
        lease.set_metrics(seq, "", {"quality.passed": float(passed), "lag": 120.0, **self.metrics})
        for stage in pipeline.stages:
            lease.set_metrics(seq, stage.name, {**counts, "state-bytes": 24_000.0 + 300 * seq})
        lease.release()
        self.now += MINUTE * 4.5

    def day(self, pipeline: Pipeline, batches: int, **more: float) -> None:
        """Batches that come every five minutes; what they emit goes up and down, as by day and by night."""
        for seq in range(1, batches + 1):
            emitted = round(self.offsets * (0.3 + 0.2 * math.sin(seq / 9) + 0.03 * (seq * 7 % 5)))
            counts = {
                "used": self.offsets,
                "emitted": emitted,
                "idempotent-update-skip": self.offsets - emitted,
            }
            self.batch(pipeline, seq, {**counts, "state-rows": 4000 + 10 * seq, **more})

    def fail(self, pipeline: Pipeline, seq: int, step: str, error: TidegateError) -> None:
        """A planned batch that failed in a step."""
        lease = self.lease(pipeline)
        lease.add_plan(self.plan(pipeline, seq))
        lease.note_failure(seq, step, error)
        lease.release()

    def add_history(
        self, pipeline: Pipeline, batches: int, metrics: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        """Add committed and published batches at once: rows in the ledger, and no files. `metrics`, by stage
        and name, are those of each batch.
        """
        lease = self.lease(pipeline)
        lease.add_plan(first := self.plan(pipeline, 1))
        attempt = self.attempt(first, pipeline, {"emitted": 1, "used": 1})
        lease.add_attempt(attempt)
        lease.commit(first, attempt)
        lease.release()
        with self.app.ledger._engine.begin() as connection:
            for start in range(2, batches + 1, 10_000):
                span = range(start, min(start + 10_000, batches + 1))
                _insert_batches(connection, span, first, attempt)
                _insert_outcomes(connection, span, pipeline, metrics or {})
            own = in_stream(schema.heads, first.stream)
            connection.execute(schema.heads.update().where(own).values(seq=batches))

    def _quarantine(self, plan: Plan, name: str, rows: Sequence[Mapping[str, object]]) -> DataFile:
        lake = self.app.lake(plan.stream)
        path = f"{lake.files('quarantine', '', name)}/{plan.seq}.parquet"
        writer = RowWriter(lake.store, path, "quarantine", "")
        with writer:
            for batch in pa.Table.from_pylist([dict(row) for row in rows], QUARANTINE).to_batches():
                writer.write(batch)
        assert writer.file is not None
        return writer.file

    def _outbox(
        self, plan: Plan, name: str, stage: str, emissions: Sequence[Mapping[str, object]]
    ) -> DataFile:
        """Write the outbox of a stage, sorted by hash, and return its file."""
        lake = self.app.lake(plan.stream)
        rows = sorted(emissions, key=lambda emission: key_hash(str(emission["key"])))
        hashed = [{**row, "hash": key_hash(str(row["key"])), "seq": plan.seq} for row in rows]
        value, keys = pa.struct([("n", pa.int64())]), pa.struct([("id", pa.int64())])
        table = pa.Table.from_pylist(hashed, outbox_schema(value, keys, {}))
        path = f"{lake.files('outbox', stage, name)}/0.parquet"
        with RowWriter(lake.store, path, "outbox", stage) as writer:
            for batch in table.to_batches():
                writer.write(batch)
        assert writer.file is not None
        return writer.file


QUARANTINE = pa.schema(
    [
        ("seq", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("reason", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


def unusable(
    offset: int, value: bytes, reason: str = "malformed: it is cut off", seq: int = 1
) -> dict[str, object]:
    """A row of a quarantine."""
    return {
        "seq": seq,
        "topic": "stock",
        "partition": 0,
        "offset": offset,
        "timestamp": 1_767_225_600_000,
        "reason": reason,
        "key": b"s1",
        "value": value,
    }


def _insert_batches(connection: Connection, seqs: range, plan: Plan, attempt: Attempt) -> None:
    """Plans, attempts and commits like those of one batch; their ranges are its own."""
    key = {"pipeline": plan.stream.pipeline, "generation": plan.stream.generation}
    planned = {**key, **plan_out(plan)}
    computed = {**key, **columns_of(attempt), "epoch": 1, "computed_at": 0.0}
    committed = {**key, **manifest_out(attempt.manifest, "attempt")}
    rows = {
        schema.plans: [{**planned, "seq": n, "run_id": f"run-{n}", "planned_at": float(n)} for n in seqs],
        schema.attempts: [{**computed, "seq": n} for n in seqs],
        schema.commits: [{**committed, "seq": n, "committed_at": float(n)} for n in seqs],
    }
    for table, of_table in rows.items():
        connection.execute(insert(table), of_table)


def _insert_outcomes(
    connection: Connection, seqs: range, pipeline: Pipeline, metrics: Mapping[tuple[str, str], float]
) -> None:
    """Publications to all sinks, and metrics, of each batch."""
    stream = stream_of(pipeline)
    key = {"pipeline": stream.pipeline, "generation": stream.generation}
    sent = {**key, "records": 1, "published_at": 0.0}
    rows = {
        schema.publications: [{**sent, "seq": n, "sink": sink.name} for n in seqs for sink in pipeline.sinks],
        schema.metrics: [
            {**key, "seq": n, "stage": stage, "name": name, "value": value}
            for n in seqs
            for (stage, name), value in metrics.items()
        ],
    }
    for table, of_table in rows.items():
        if of_table:
            connection.execute(insert(table), of_table)


def emission(key: str, n: int | None, ordinal: int = 0, reason: str = "changed") -> dict[str, object]:
    """Return a row of an outbox; `n` None is a deletion."""
    value = None if n is None else {"n": n}
    times = {"timestamp": 1_000, "at": 2_000}
    return {"key": key, "value": value, "ordinal": ordinal, "reason": reason, "source": "stock/0/7", **times}
