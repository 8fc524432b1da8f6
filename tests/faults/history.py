"""The history that every run of the matrix goes through: its pipeline, its input, and what is seen of it.

Two batches of records, cut by `max_records`, a drain, and a run that finds nothing to do. All runs read one
source topic; what a run writes is its own.

There are other histories: `rich` has a lookup, a suite by which rows are refused, dead letters, and
a SQL table that is upserted; in `doctor` retention takes records before they are read, and a plan is dropped;
`single` has one batch and one stage; in `maintained` the first batch's state is folded, given up and removed
before the second: nothing that is seen may differ from the plain one; in `replayed`, which has dead letters,
too, one of two records in quarantine is discarded, and the second batch replays the other one, corrected. It
also expects keys of a table. `tree` has a tree of stages behind a lookup whose changed rows make emissions: a
join, a stage that retracts, one with `ttl`. The tables of both have other rows from the second batch on.
`posted` has an HTTP sink, too: its receiver stores idempotency keys, and outlives the steps. The `connected`
ones are the plain, the rich and the single one, computed in a session of a Spark Connect server: again,
nothing that is seen may differ.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tests.faults.databases import Databases
from tests.faults.fault import PLAIN
from tests.faults.receiver import ReceiverProcess
from tests.quarantines import stored_quarantine
from tidegate import inspect, quarantine
from tidegate.app import App, stream_of
from tidegate.batch import Trigger
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate.kernel.tables import topic_of
from tidegate.quarantine import ResolutionRequest, discard_records
from tidegate_dev.demo.topics import committed_records

NOW_MS = 1_700_000_000_000
RICH, DOCTOR, SINGLE, MAINTAINED, REPLAYED = "rich", "doctor", "single", "maintained", "replayed"
TREE, POSTED = "tree", "posted"
BATCHES = 3
"""The last one is the drain."""
CONNECTED, CONNECTED_RICH, CONNECTED_SINGLE = "connected", "connected_rich", "connected_single"
SHAPES = {CONNECTED: PLAIN, CONNECTED_RICH: RICH, CONNECTED_SINGLE: SINGLE}
"""A history that is computed in a server -> the one that it is otherwise."""
OF_BATCHES = ("counts", "published", "ranges")
"""What is observed of each batch."""

PIPELINE = """\
pipeline: {name}
source:
  topics: [{source}]
  format: json
  columns: "shop string, id bigint, quantity int"
  key: [shop, id]
  max_records: {most}
{lookup}stages:
  - {{name: level, select: {{open: "quantity > 0", quantity: quantity{region}}}, emit: {{on: change}}}}
{further}sinks:
{topics}{endpoint}  - {{kind: sql, table: levels, mode: {mode}, with_key: true, stage: level}}
  - {{kind: table}}
{quality}{quarantine}"""
BUNDLE = "  - {name: bundle, from: level, reduce: collect, emit: {on: threshold, count: 2, after: 1h}}\n"
SILENT = """\
  - name: silent
    from: source
    select: {{quantity: quantity}}
    emit: {{on: quiet, after: 20s}}
    expected: {{table: {table}, key: [shop, id]}}
"""
BRANCHES = """\
  - {name: big, from: source, filter: "quantity > 1", select: {quantity: quantity}, emit: {on: update}}
  - name: pairs
    join: {left: level, right: big, kind: left, within: 10s, grace: 1s}
    select: {level: left.quantity, region: left.region, big: right.quantity}
  - name: regions
    from: level
    key: [region]
    retract: true
    reduce: {shops: "count(*)", stock: "sum(quantity)", most: "max(quantity)"}
    emit: {on: update}
  - {name: recent, from: level, emit: {on: change, clock: run}, ttl: {after: 20s, emit: deletion}}
"""
TOPIC = "  - {{kind: kafka, topic: {topic}, with_key: true, stage: {stage}}}\n"
ENDPOINT = "  - {kind: http, path: levels, stage: level, batch_records: 3}\n"
"""A batch has several requests."""
LOOKUP = "lookup: [{{table: {table}, on: [shop], columns: [region], on_change: {on_change}}}]\n"
QUALITY = "quality: {suite: strict, stage: level, on_failure: quarantine}\n"
QUARANTINE = "quarantine: {{topic: {dead}}}\n"
SUITE = {
    "name": "strict",
    "meta": {},
    "expectations": [
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "key"}},
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "quantity", "max_value": 2}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"max_value": 100}},
    ],
}
"""Each fourth record has a quantity of 3: it is refused, and goes into quarantine."""
STAGES = {
    SINGLE: ("level",),
    REPLAYED: ("level", "silent", "bundle"),
    TREE: ("level", "big", "pairs", "regions", "recent"),
}
"""History -> its stages, where they are not those of the plain one."""
TOPICS = {REPLAYED: ("level", "silent"), TREE: ("level", "pairs", "regions")}
"""History -> the stages that have a topic, where there are several."""
TABLES: dict[str, tuple[dict[str, list[Any]], ...]] = {
    RICH: ({"shop": ["north"], "region": ["hills"]},),
    TREE: (
        {"shop": ["north"], "region": ["hills"]},
        {"shop": ["north", "south"], "region": ["coast", "hills"]},
    ),
    REPLAYED: (
        {"shop": ["north"] * 3, "id": [1, 77, 78]},
        {"shop": ["north"] * 3, "id": [1, 78, 79]},
    ),
}
"""History -> the rows of its table, at first and from the second batch on."""


def shape_of(history: str) -> str:
    """The history without the server that it is computed in."""
    return SHAPES.get(history, history)


def new_name() -> str:
    """A name that is free, for topics and databases too."""
    return f"f{uuid4().hex[:10]}"


@dataclass
class Scene:
    """One run's own world: folder, topics, ledger, lake and database, on the shared broker."""

    folder: Path
    servers: str
    source: str
    databases: Databases
    history: str = PLAIN
    name: str = field(default_factory=new_name)

    def __post_init__(self) -> None:
        (self.folder / "pipelines").mkdir(parents=True)
        self.topics = {stage: f"{stage}s-{self.name}" for stage in TOPICS.get(self.history, ("level",))}
        self.dead = f"dead-{self.name}"
        self.progress = f"progress-{self.name}"
        self.log = self.folder / "log"
        if self.history == DOCTOR:
            self.source = f"source-{self.name}"
        self.fired = self.folder / "fired"
        self.receiver = ReceiverProcess(self.folder / "receiver") if self.history == POSTED else None
        (self.folder / "pipelines" / f"{self.name}.yaml").write_text(
            PIPELINE.format(
                name=self.name,
                source=self.source,
                topics="".join(
                    TOPIC.format(topic=topic, stage=stage) for stage, topic in self.topics.items()
                ),
                endpoint=ENDPOINT if self.receiver is not None else "",
                most=1000 if self.history in (SINGLE, REPLAYED) else 13,
                further=self._further_stages,
                region=", region: region" if self._lookup else "",
                mode="upsert" if self.history == RICH else "append",
                lookup=self._lookup,
                quality=QUALITY if self.history == RICH else "",
                quarantine=QUARANTINE.format(dead=self.dead) if self.has_dead_letters else "",
            )
        )
        (self.folder / "expectations").mkdir()
        (self.folder / "expectations" / "strict.json").write_text(json.dumps(SUITE))

    @property
    def stages(self) -> tuple[str, ...]:
        """Their names."""
        return STAGES.get(self.history, ("level", "bundle"))

    @property
    def levels(self) -> str:
        """The topic of the stage `level`."""
        return self.topics["level"]

    @property
    def table(self) -> Path:
        """The table that records are joined with, or that has the expected keys."""
        return self.folder / "shops"

    @property
    def _lookup(self) -> str:
        on_change = {RICH: "nothing", TREE: "emit"}.get(self.history)
        return "" if on_change is None else LOOKUP.format(table=self.table, on_change=on_change)

    @property
    def _further_stages(self) -> str:
        if self.history == TREE:
            return BRANCHES
        silent = SILENT.format(table=self.table) if "silent" in self.stages else ""
        return silent + (BUNDLE if "bundle" in self.stages else "")

    @property
    def has_dead_letters(self) -> bool:
        """Whether what is put into quarantine goes to a topic, too."""
        return self.history in (RICH, REPLAYED)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of a step's process."""
        return {
            "TIDEGATE_HOME": str(self.folder),
            "TIDEGATE_KAFKA": self.servers,
            "TIDEGATE_PIPELINES": str(self.folder / "pipelines"),
            "TIDEGATE_LEDGER": self.databases.ledger,
            "TIDEGATE_SQL": self.databases.sink,
            **({} if self.receiver is None else {"TIDEGATE_HTTP": self.receiver.url}),
        }

    def trigger(self, run_id: str, batch: int) -> Trigger:
        """Return the trigger of the run that makes a batch, always at one instant: time is no input."""
        trigger = Trigger(run_id, NOW_MS, NOW_MS, now_ms=NOW_MS, drain=batch == BATCHES)
        if self.history == REPLAYED and batch == 2:
            request = quarantine.ReplayedRecords(lambda: map(corrected, self.opened()), "somebody")
            return replace(trigger, replay=request)
        return trigger

    def discard(self) -> None:
        """Nobody will use what the first partition has in quarantine."""
        app = App.from_environment({**os.environ, **self.environment})
        stream = stream_of(app.pipeline(self.name))
        request = ResolutionRequest(lambda: self.opened(0), "somebody", "of no use")
        discard_records(app, stream, request)

    def opened(self, *partitions: int) -> Iterator[pa.Table]:
        """Yield the records of quarantine that are still open."""
        app = App.from_environment({**os.environ, **self.environment})
        where = quarantine.QuarantineFilter(partitions=partitions)
        return quarantine.iter_open(app, stream_of(app.pipeline(self.name)), where)

    def create(self) -> None:
        """The output topics, and what else this history needs."""
        dead = [self.dead] if self.has_dead_letters else []
        create_topics(self.servers, *self.topics.values(), *dead)
        if self.history == DOCTOR:
            send_input(self.servers, self.source)
        if self.history in TABLES:
            self._write_table(0)

    def change_surroundings(self) -> None:
        """Do what happens between the first two batches outside of tidegate."""
        if self.history == DOCTOR:
            self._lose_records()
        if len(TABLES.get(self.history, ())) > 1:
            self._write_table(1)

    def _write_table(self, version: int) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.table, pa.table(TABLES[self.history][version]), mode="overwrite")

    def stop_receiver(self) -> None:
        """End the receiver of requests, if there is one. What it has used can still be observed."""
        if self.receiver is not None:
            self.receiver.stop()

    def delete_topics(self) -> None:
        """The broker need not keep what was compared."""
        from kafka import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            own = {self.source} if self.history == DOCTOR else set()
            own |= {self.dead} if self.has_dead_letters else set()
            admin.delete_topics(list({*self.topics.values(), self.progress, *own} - {PROGRESS_TOPIC}))
        finally:
            admin.close()

    def _lose_records(self) -> None:
        """Retention takes the next two records of the first partition."""
        from kafka import KafkaAdminClient, TopicPartition

        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            admin.delete_records({TopicPartition(self.source, 0): 9})
        finally:
            admin.close()

    def observe(self) -> dict[str, Any]:
        """Return all visible results of the run, without the names of its own topics."""
        app = App.from_environment({**os.environ, **self.environment})
        stream = stream_of(app.pipeline(self.name))
        head = app.ledger.head(stream)
        seqs = [seq for seq, _ in app.ledger.committed(stream)]
        if self.history == MAINTAINED:  # maintenance that wakes up late removes what is before the head
            seqs = seqs[-1:]
        seen = {
            "topics": {stage: read_topic(self.servers, topic) for stage, topic in self.topics.items()},
            "dead letters": read_topic(self.servers, self.dead) if self.has_dead_letters else {},
            "rows": self.databases.levels(in_order=self.history != RICH),
            "posted": [] if self.receiver is None else self.receiver.emissions(),
            "table": self._table(app.lake(stream).table_sink(None)),
            "state": {
                stage: inspect.read_state(app, stream, stage=stage).to_pylist() for stage in self.stages
            },
            "quarantine": stored_quarantine(app, stream),
            "resolutions": [
                (made.number, made.seq, made.first_batch, made.manifest.file_rows, made.reason)
                for made in app.ledger.resolutions(stream)
            ],
            "head": (head.seq, head.offsets, sorted(head.topic_ids)),
            "batches": [seq for seq, _ in app.ledger.committed(stream)],
            "counts": {seq: app.ledger.attempt(stream, seq).counts for seq in seqs},
            "published": {seq: app.ledger.publications(stream, seq) for seq in seqs},
            "ranges": {seq: app.ledger.plan(stream, seq).ranges for seq in seqs},
        }
        # emissions for changed rows have a reason and a position that name the table
        own = {self.name: "NAME", str(self.table): "TABLE", topic_of(str(self.table)): "#TABLE"}
        return {part: _without(repr(value), own) for part, value in seen.items()}

    def _table(self, path: str) -> list[dict[str, Any]] | None:
        """Return the rows of a table; None before it is created."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(path):
            return None
        return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=repr)  # a table has no order


def _without(text: str, names: Mapping[str, str]) -> str:
    for name, word in names.items():
        text = text.replace(name, word)
    return text


def corrected(rows: pa.Table) -> pa.Table:
    """Records of a quarantine with a value in place of what nobody can read."""
    values = [(key[:-1] + b',"quantity":9}') for key in rows["key"].to_pylist()]
    place = rows.schema.get_field_index("value")
    return rows.set_column(place, rows.schema.field(place), pa.array(values, pa.binary()))


def create_topics(servers: str, *names: str) -> None:
    """New topics with two partitions."""
    from kafka.admin import NewTopic

    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(name, 2, 1) for name in names])
    finally:
        admin.close()


def read_topic(servers: str, topic: str) -> dict[str, list[Any]]:
    """Key -> (partition, value, headers, timestamp) in order, as a `read_committed` consumer sees them."""
    records_by_key: dict[str, list[Any]] = {}
    for record in committed_records(servers, topic):
        content = (record.partition, record.value, record.headers, record.timestamp)
        records_by_key.setdefault(record.key.decode(), []).append(content)
    return dict(sorted(records_by_key.items()))


def send_input(servers: str, topic: str) -> None:
    """The source topic of all runs: ten keys in two partitions, late and early, deleted, unusable."""
    from kafka import KafkaProducer

    create_topics(servers, topic)
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    try:
        for number in range(26):
            partition, key = number % 2, (number // 2) % 5
            shop = "north" if partition else "south"
            producer.send(topic, partition=partition, **_record(number, shop, key))
        producer.flush()
    finally:
        producer.close()


def _record(number: int, shop: str, key: int) -> Mapping[str, Any]:
    at = NOW_MS - 60_000 + (number * 7_919) % 50_000  # out of order
    body: bytes | None = json.dumps({"shop": shop, "id": key, "quantity": (number * 5) % 4}).encode()
    if number in (9, 20):
        body = b"{not json"
    if number in (12, 23):
        body = None
    return {"key": f'{{"shop":"{shop}","id":{key}}}'.encode(), "value": body, "timestamp_ms": at}
