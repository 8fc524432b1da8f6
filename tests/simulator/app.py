"""tidegate's own composition root, on the world in memory.

Real are the steps, `KafkaPublisher` and `KafkaLog`. They find the clients of `clients` in place of
librdkafka's and kafka-python's, and the world's clock in place of the machine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.simulator import clients, grammar, outputs, receivers, replays, sinks
from tests.simulator.broker import Broker
from tests.simulator.compute import Lake, SimMarks, compute, folded_state, outbox_of, quarantine_of, reuse
from tests.simulator.ledger import SimLeased, SimLedger, Store
from tests.simulator.world import Keeper, World
from tidegate.app import App, OpenSession
from tidegate.errors import Fenced, LakeUnavailable, LedgerUnavailable
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.publisher import KafkaPublisher
from tidegate.ledger import Attempt, ManifestRef, Plan, Stream
from tidegate.ledger.planned import planned_pipeline
from tidegate.model.pipeline import Pipeline
from tidegate.model.stage import Stage
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import ExpectationResult, Verdict
from tidegate.recovery import Situation
from tidegate.settings import Settings
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.places import _place
from tidegate.sinks.sql.layout import Layout
from tidegate.sinks.web import HttpConfig
from tidegate.storage import Manifest

CHUNK_RECORDS = 2
SETTINGS = Settings.from_environment(
    {
        "TIDEGATE_KAFKA": "simulated:9092",
        "TIDEGATE_HOME": "simulated",
        "TIDEGATE_PIPELINES": "simulated",  # a folder that does not exist: worlds have their files in memory
        "TIDEGATE_SQL": "postgresql://simulated/sink",
        "TIDEGATE_HTTP": "http://simulated",
    }
)


@dataclass
class Places:
    """The systems outside of the processes, in the one world of a seed."""

    world: World
    broker: Broker = field(init=False)
    store: Store = field(init=False)
    lake: Lake = field(default_factory=Lake)
    shelf: sinks.Shelf = field(init=False)
    receiver: receivers.Receiver = field(init=False)
    stream: Stream = field(default=Stream("simulated", 1))
    gate: Callable[[Attempt], bool] = lambda _: True
    files: dict[str, Pipeline] = field(default_factory=dict)
    attempts: int = 0

    def __post_init__(self) -> None:
        world = self.world
        self.broker = Broker(
            lambda: world.now, lambda act: world.at(world.now + world.dice.choice(DELAYS), act), world.at
        )
        read = partial(world.effect, error=LedgerUnavailable)
        self.shelf = sinks.Shelf(world)
        self.receiver = receivers.Receiver(world)
        self.store = Store(lambda: world.now, read=read, write=self._write)

    def app(self) -> SimApp:
        return SimApp(SETTINGS, SimLedger(self.store), self)  # type: ignore[arg-type]

    def _write(self, name: str, act: Callable[[], Any]) -> Any:
        def transaction() -> Any:
            self.world.arrive("ledger.")  # it holds the row's lock, so it is over before
            return act()

        return self.world.effect(name, transaction, LedgerUnavailable)


DELAYS = (0.0, 0.0, 0.1, 0.5, 5.0)
"""Seconds until a marker is written."""


@dataclass(frozen=True)
class SimApp(App):
    """An app whose steps read and write in the world of the simulator."""

    places: Places

    def marks(self, stream: Stream) -> SimMarks:  # type: ignore[override]
        return SimMarks(self.places.world, self.places.lake.marks[stream])

    def promotion_marks(self, pipeline: str) -> SimMarks:  # type: ignore[override]
        return SimMarks(self.places.world, self.places.lake.promotions[pipeline])

    def manifest(self, stream: Stream, reference: ManifestRef) -> Manifest:
        read = partial(self.places.lake.manifest, reference)
        return self.places.world.effect("lake.manifest", read, LakeUnavailable)

    def write_manifest(self, stream: Stream, manifest: Manifest) -> ManifestRef:
        write = partial(self.places.lake.write_manifest, manifest)
        return self.places.world.effect("lake.write_manifest", write, LakeUnavailable)

    def outbox(self, plan: Plan, stage: Stage, attempt: Attempt) -> Outbox:
        places = self.places
        act = partial(outbox_of, places.world, places.lake, plan, stage, attempt)
        return places.world.effect("lake.outbox", act, LakeUnavailable)

    def quarantined(self, plan: Plan, attempt: Attempt) -> Outbox:
        places = self.places
        act = partial(quarantine_of, places.world, places.lake, plan, attempt)
        return places.world.effect("lake.outbox", act, LakeUnavailable)

    def compute(self, plan: Plan, before: Any, attempt: str, open_session: OpenSession) -> Any:
        places = self.places
        if plan.reused is not None:
            stored = self.ledger.attempt(Stream(plan.stream.pipeline, plan.reused.generation), plan.seq)
            assert stored is not None, "nothing leaves the ledger in the worlds that repeat batches"
            return reuse(places.world, places.lake, plan, stored, attempt)
        return compute(
            places.world, places.broker, places.lake, plan, planned_pipeline(plan), before, attempt
        )


_now: list[Places] = []


def enter(places: Places) -> None:
    """Make this the world that clients find."""
    _now[:] = [places]


def here() -> Places:
    return _now[0]


class _Thread:
    """A lease keeper, whose heart beats with the world's clock."""

    def __init__(self, target: Any, args: tuple[Any, ...], daemon: bool) -> None:
        self._lease = args[0]
        self._keeper: Keeper | None = None

    def start(self) -> None:
        process = here().world.current
        assert process is not None
        self._keeper = Keeper(process, self._renew)
        here().world.keepers.append(self._keeper)

    def join(self) -> None:
        keepers = here().world.keepers
        if self._keeper in keepers:
            keepers.remove(self._keeper)

    def _renew(self) -> bool:
        try:
            self._lease.renew()
        except Fenced:
            return False
        return True


def _client(kind: Any) -> Callable[..., Any]:
    return lambda **settings: kind(here().world, here().broker, **settings)


def _attempt_id() -> Any:
    here().attempts += 1
    return SimpleNamespace(hex=f"{here().attempts:08x}".ljust(32, "0"))


_FAILED = ExpectationResult(1, "simulated", (), Severity.CRITICAL, passed=False)


def _gate(
    app: Any, lease: Any, plan: Plan, pipeline: Pipeline, attempt: Attempt, check: Any
) -> list[Verdict]:
    """Validate an attempt in place of `batch.validate._verdicts`."""
    passed = here().world.effect("gate", lambda: here().gate(attempt))
    return [Verdict("simulated", () if passed else (_FAILED,))]


@contextmanager
def _leased(_: Situation) -> Iterator[SimLeased]:
    """Take the lease in place of `Situation.leased`, in the process that recovers the stream."""
    lease = here().app().ledger.acquire(here().stream, f"recover-{len(here().world.trace)}")
    try:
        yield lease  # type: ignore[misc]
    finally:
        lease.release()


def _delta_table(path: str, version: int | None = None) -> Any:
    """Open a table in place of `storage.delta.open_table`."""
    pin = here().world.effect("lookup.open", lambda: here().lake.delta.pin(path), LakeUnavailable)
    columns = SimpleNamespace(fields=[SimpleNamespace(name=name) for name in ("key", "rate")])
    return SimpleNamespace(
        version=lambda: pin["version"],
        metadata=lambda: SimpleNamespace(id=pin["id"]),
        schema=lambda: columns,
    )


_TIME = SimpleNamespace(monotonic=lambda: here().world.now)
_NO_FAILPOINTS = SimpleNamespace(environ={})
_THREADING = SimpleNamespace(Event=lambda: SimpleNamespace(set=lambda: None), Thread=_Thread)

# What a step makes of the settings and of the pipeline's text is the same in all seeds, so it is made once.
_MADE_ONCE: dict[str, Any] = {
    "tidegate.settings.KafkaConfig.parse": cache(KafkaConfig.parse),
    "tidegate.sinks.http.sink.HttpConfig.parse": cache(HttpConfig.parse),
    "tidegate.sinks.port.import_module": cache(import_module),
    "tidegate.sinks.sql.sink.Layout": cache(Layout),
    "tidegate.sinks.places._place": cache(_place),
    "tidegate.batch.pipeline_files.notable_changes": grammar.notable,
}

REPLACED: dict[str, Any] = _MADE_ONCE | {
    "tidegate.kafka.producer.Producer": lambda config: clients.SimProducer(
        here().world, here().broker, config
    ),
    "tidegate.kafka.records.ck.Consumer": lambda config: clients.SimConsumer(
        here().world, here().broker, config
    ),
    "tidegate.kafka.records.time": _TIME,
    "tidegate.kafka.topic_facts.FIRST_WINDOW": 2,
    "tidegate.kafka.topic_facts.WIDENING": 2,
    "tidegate.kafka.log.KafkaAdminClient": _client(clients.SimAdmin),
    "tidegate.kafka.log.epoch_ends": lambda admin, epochs: admin.epoch_ends(epochs),
    "tidegate.kafka.log.open_transactions": lambda admin, *_: admin.open_transactions(),
    "tidegate.recovery.remedy.Situation.leased": _leased,
    "tidegate.failpoints.os": _NO_FAILPOINTS,
    "tidegate.storage.layout.uuid4": _attempt_id,
    "tidegate.ledger.planned.read_compiled": lambda *arguments: grammar.read_compiled(*arguments),
    "tidegate.batch.plan.check_tables": lambda *_: None,
    "tidegate.batch.lookups.existing_table": _delta_table,
    "tidegate.batch.lookups.open_table": _delta_table,
    "tidegate.quarantine.resolve.uuid4": _attempt_id,
    "tidegate.quarantine.resolve.written_resolution": replays.written_resolution,
    "tidegate.quarantine.replay.written_resolution": replays.written_resolution,
    "tidegate.generations.lifecycle.remove_files": lambda app, stream: app.places.world.effect(
        "drop.delete", lambda: app.places.lake.remove(stream), LakeUnavailable
    ),
    "tidegate.batch.pipeline_files.incompatible_changes": lambda *arguments: grammar.changed(*arguments),
    "tidegate.batch.plan.compile_pipeline": grammar.compiled,
    "tidegate.app.lease.threading": _THREADING,
    "tidegate.app.lease.time": _TIME,
    "tidegate.batch.plan.pinned": lambda _, pipeline: pipeline,
    "tidegate.generations.lifecycle.pinned": lambda _, pipeline: pipeline,
    "tidegate.generations.recompute.pinned": lambda _, pipeline: pipeline,
    "tidegate.generations.lifecycle._folded_state": folded_state,
    "tidegate.batch.plan.time": _TIME,
    "tidegate.model.sql._parse": grammar.parse,
    "tidegate.batch.pipeline_files.load_pipelines": lambda _: (here().files, []),
    "tidegate.generations.net._written": outputs.written,
    "tidegate.generations.outputs._outboxes": outputs.outboxes,
    "tidegate.generations.promotion.catch_up_tables": lambda *_: None,
    "tidegate.batch.publish.catch_up_tables": lambda *_: None,
    "tidegate.sinks.kafka.sink.KafkaPublisher": partial(KafkaPublisher, chunk_records=CHUNK_RECORDS),
    "tidegate.sinks.table.sink.table_rows": sinks.table_rows,
    "tidegate.sinks.table.sink.OpenDeltaTable.check_outbox": lambda *_: None,
    "tidegate.sinks.table.sink.append_batch": lambda *arguments: sinks.append_batch(here().shelf, *arguments),
    "tidegate.sinks.sql.sink.Database": sinks.sql_database,
    "tidegate.sinks.sql.sink.publisher_to": lambda *arguments: sinks.publisher_to(here().shelf, *arguments),
    "tidegate.sinks.sql.sink.OpenSqlTable.check_outbox": lambda *_: None,
    "tidegate.sinks.sql.sink.OpenSqlTable._check_table": lambda *_: None,
    "tidegate.sinks.web.httpx.Client": lambda **settings: receivers.SimHttpClient(
        here().world, here().receiver, **settings
    ),
    "tidegate.sinks.http.endpoint.Endpoint.reach": lambda _: receivers.reach(here().world),
    "tidegate.sinks.http.endpoint.sleep": lambda seconds: here().world.sleep(seconds),
    "tidegate.sinks.http.endpoint.monotonic": lambda: here().world.now,
    "tidegate.sinks.http.endpoint.random": SimpleNamespace(uniform=lambda _, most: most),
    "tidegate.sinks.kafka.limits.current_ms": lambda: round(here().world.now * 1000),
    "tidegate.batch.validate._tell": lambda *_: None,
    "tidegate.batch.validate._verdicts": _gate,
}
"""What the steps find in place of the real thing."""


@contextmanager
def simulated() -> Iterator[None]:
    """The real steps, in the world of `enter`."""
    with ExitStack() as replaced:
        for name, value in REPLACED.items():
            replaced.enter_context(patch(name, value))
        yield
