"""A topic is known by its id and a log by its leader epochs, on a real broker: in plan, commit and doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.admin import NewTopic

from kafka import TopicPartition
from tests.batch.test_source import Source, own_home
from tests.manifests import manifest_ref
from tests.waits import give_up_soon
from tidegate.batch import commit_batch
from tidegate.errors import BrokerUnavailable, LogTruncated, TopicRecreated
from tidegate.ledger import Attempt, Head, Plan
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker


class Machine:
    """A broker of a test's own, whose disk can lose what it has."""

    def __init__(self, broker: KafkaBroker, source: Source, data: Path) -> None:
        self.broker, self.source, self.data = broker, source, data

    def restart(self) -> None:
        self.broker.stop()
        self.broker.start()

    def lose_log(self) -> None:
        """Remove the topic's log, as if a disk was replaced; the topic is the same."""
        self.broker.stop()
        for file in (self.data / f"{self.source.topic}-0").glob("*"):
            if file.name != "partition.metadata":
                file.unlink()
        self.broker.start()

    def recreate(self) -> None:
        self.source.admin("delete_topics", [self.source.topic])
        self.source.admin("create_topics", [NewTopic(self.source.topic, 1, 1)])

    @property
    def head(self) -> Head:
        return self.source.batches.app.ledger.head(self.source.batches.stream)

    def computed(self) -> Plan:
        """A batch that waits for its commit."""
        plan = self.source.plan().plan
        assert plan is not None
        lease = self.source.batches.app.ledger.acquire(plan.stream, "test")
        attempt = Attempt(plan.stream, plan.seq, manifest_ref(f"a{plan.seq}"), {"": {"read": plan.span}})
        lease.add_attempt(attempt)
        lease.set_validated(attempt, True)
        lease.release()
        return plan

    def commit(self, plan: Plan) -> str:
        return commit_batch(self.source.batches.app, plan, plan.run_id)


@pytest.fixture(scope="module")
def shared(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, Path]]:
    """One broker for all tests here, which restart it."""
    own = own_home(home, tmp_path_factory.mktemp("identity"))
    with KafkaBroker(own) as broker:
        yield broker, own / "kafka" / "data"


@pytest.fixture
def machine(shared: tuple[KafkaBroker, Path], tmp_path: Path) -> Machine:
    broker, data = shared
    return Machine(broker, Source(tmp_path, broker.bootstrap_servers), data)


def test_truncated_and_regrown_log_halts(
    machine: Machine,
) -> None:
    source = machine.source
    source.send(1, 2, 3)
    source.decide()
    before = machine.head
    machine.lose_log()
    source.send(11, 12, 13, 14, 15)
    with pytest.raises(LogTruncated, match=r"truncated below offset 3 and has grown again.*Restore the log"):
        source.plan()
    code, shown = source.doctor()
    assert (code, "raise `generation` of visitors" in shown) == (2, True)
    assert machine.head == before


def test_restarted_broker_without_loss_halts_nothing(machine: Machine) -> None:
    source = machine.source
    source.send(1)
    assert source.decide() == [(0, 0, 1)]
    machine.restart()
    assert source.plan().plan is None
    source.send(2, 3)
    machine.restart()
    source.send(4)
    source.write("  format: json", "  format: json\n  max_records: 1")
    epochs = []
    for offset in (1, 2, 3):
        assert source.decide() == [(0, offset, offset + 1)]
        epochs.append(machine.head.epochs[source.topic, 0])
    assert epochs[0] == epochs[1] < epochs[2], "each is the one that its record was written in"
    assert source.doctor()[0] == 0


def test_retention_can_delete_a_read_epoch(machine: Machine) -> None:
    source = machine.source
    source.send(1, 2)
    source.decide()
    source.admin("delete_records", {TopicPartition(source.topic, 0): 2})
    machine.restart()
    assert source.plan().plan is None
    source.send(3, 4, 5)
    assert source.decide() == [(0, 2, 5)]
    source.send(6, 7)
    source.admin("delete_records", {TopicPartition(source.topic, 0): 6})
    assert source.recover("accept-gap")[0] == 0
    assert source.decide() == [(0, 6, 7)]


@pytest.mark.parametrize(
    ("befall", "error", "message"),
    [
        (Machine.recreate, TopicRecreated, "was deleted and created again"),
        (Machine.lose_log, LogTruncated, "batch 2 is planned up to there.*--choose drop-plan"),
    ],
    ids=["recreated", "truncated"],
)
def test_source_replaced_before_the_commit_halts(
    machine: Machine, befall: Callable[[Machine], None], error: type[Exception], message: str
) -> None:
    source = machine.source
    source.send(1, 2)
    source.decide()
    source.send(3)
    plan, before = machine.computed(), machine.head
    befall(machine)
    source.send(11, 12, 13, 14)
    with pytest.raises(error, match=message):
        machine.commit(plan)
    assert machine.head == before
    code, shown = source.doctor()
    assert (code, error.__name__ in shown) == (2, True)


def test_first_batch_of_a_recreated_topic_is_replanned(machine: Machine) -> None:
    source = machine.source
    source.send(1)
    plan = machine.computed()
    machine.recreate()
    source.send(2, 3)
    with pytest.raises(TopicRecreated, match="--choose drop-plan"):
        machine.commit(plan)
    assert source.recover("drop-plan")[0] == 0
    assert source.decide() == [(0, 0, 2)]


def test_broker_lost_at_commit_is_transient(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.source.send(1)
    plan = machine.computed()
    machine.broker.stop()
    with monkeypatch.context() as patched:
        give_up_soon(patched)
        with pytest.raises(BrokerUnavailable):
            machine.commit(plan)
    assert machine.head.seq == 0
    machine.broker.start()
    machine.commit(plan)
    assert machine.head.seq == 1


def test_records_deleted_after_reading_are_still_committed(machine: Machine) -> None:
    source = machine.source
    source.send(1, 2, 3)
    plan = machine.computed()
    source.admin("delete_records", {TopicPartition(source.topic, 0): 2})
    machine.commit(plan)
    assert (machine.head.seq, machine.head.offsets) == (1, {(source.topic, 0): 3})
