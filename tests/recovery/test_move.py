"""`tidegate recover --choose move`: a source topic of which another cluster has a copy, on two brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from click.testing import Result
from kafka.admin import NewTopic

from kafka import KafkaAdminClient, KafkaProducer
from tests.batch.test_source import Source
from tests.recovery.commands import recover
from tests.world import World, key_of, stock_event
from tidegate.app import App
from tidegate.batch import Trigger, run_batch
from tidegate.errors import TopicRecreated
from tidegate.inspect import read_state
from tidegate.recovery.move import lower_positions
from tidegate_dev.broker import KafkaBroker

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def new_broker(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The cluster that topics are moved to."""
    folder = tmp_path_factory.mktemp("new")
    (folder / "jars").symlink_to(installed / "jars", target_is_directory=True)
    with KafkaBroker(folder) as running:
        yield running


class Message(NamedTuple):
    key: bytes
    value: bytes
    timestamp_ms: int


def messages(first: int, end: int) -> list[Message]:
    return [
        Message(b"k%d" % (number % 3), b'{"n": %d}' % number, 1_000 + number) for number in range(first, end)
    ]


def send(servers: str, topic: str, sent: list[Message], partition: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    for message in sent:
        producer.send(
            topic, message.value, message.key, partition=partition, timestamp_ms=message.timestamp_ms
        )
    producer.flush()
    producer.close()


def create(servers: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()


class Moved(Source):
    """A stream that has read seven of ten records, and whose connection then leads to a new cluster."""

    def __init__(self, folder: Path, old_servers: str, new_servers: str) -> None:
        super().__init__(folder, old_servers)
        send(old_servers, self.topic, messages(0, 7))
        self.decide()
        send(old_servers, self.topic, messages(7, 10))
        self.new_servers = new_servers
        self.file = folder / "checkpoints.csv"
        environment = self.batches.environment
        environment |= {"TIDEGATE_KAFKA": new_servers, "TIDEGATE_KAFKA_OLD": old_servers}
        self.batches.app = App.from_environment(environment)

    def copy(self, sent: list[Message], partitions: int = 1) -> None:
        """Fill the topic of the new cluster."""
        create(self.new_servers, self.topic, partitions)
        send(self.new_servers, self.topic, sent)

    def move(self, *options: str) -> Result:
        return recover(self.batches.environment, "visitors", "--choose", "move", *options)

    def next_range(self) -> tuple[int, int]:
        plan = self.plan(10**6).plan
        assert plan is not None
        (read,) = plan.ranges
        return read.start, read.end


@pytest.fixture
def moved(tmp_path: Path, broker: KafkaBroker, new_broker: KafkaBroker) -> Moved:
    return Moved(tmp_path, broker.bootstrap_servers, new_broker.bootstrap_servers)


def test_position_is_found_by_surrounding_records(moved: Moved) -> None:
    moved.copy(messages(4, 10))
    with pytest.raises(TopicRecreated, match="tidegate recover visitors --choose move"):
        moved.plan(10**6)
    shown = moved.move("--old-connection", "old")
    assert shown.exit_code == 4
    assert f"{moved.topic}[0] goes on at 3 in place of 7: 3 records before it and 3 after it" in shown.output
    assert f"Offsets of {moved.topic} go back." in shown.output
    assert moved.batches.app.ledger.recoveries(moved.batches.stream) == []
    done = moved.move("--old-connection", "old", "--yes")
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"goes on in the new cluster, at {moved.topic}[0] 3.\n")
    assert moved.next_range() == (3, 6)
    (use,) = moved.batches.app.ledger.recoveries(moved.batches.stream)
    assert use.remedy == "move"
    again = moved.move("--old-connection", "old", "--yes")
    assert again.output == "visitors/1 needs no remedy move: its cause is not there.\n"


def test_copy_that_is_behind_continues_at_its_end(moved: Moved) -> None:
    moved.copy(messages(0, 7))
    shown = moved.move("--old-connection", "old")
    assert "7 records before it and 0 after it are the same" in shown.output
    assert "the old topic has 3 offsets, the new one 0: see that the rest is still copied" in shown.output


def test_planned_batch_is_replanned_in_the_new_topic(moved: Moved) -> None:
    moved.copy(messages(4, 10))
    plan = moved.batches.planned(2)
    moved.batches.app.ledger.acquire(moved.batches.stream, "x").add_plan(plan)
    moved.batches.app.ledger.acquire(moved.batches.stream, "x").release()
    done = moved.move("--old-connection", "old", "--yes")
    assert "Batch 2 is forgotten" in done.output
    assert moved.next_range() == (3, 6)


REFUSED: dict[str, tuple[Callable[[Moved], None], str]] = {
    "nothing_says_it": (lambda moved: moved.copy(messages(4, 10)), "Give what does: --old-connection NAME"),
    "records_repeat": (lambda moved: moved.copy(messages(0, 10) * 2), "the records around it are at 7, 17"),
    "another_topic": (lambda moved: moved.copy(messages(20, 30)), "no place has the records around it"),
    "not_there_yet": (lambda moved: moved.copy(messages(0, 5)), "no place has the records around it"),
    "more_partitions": (
        lambda moved: (moved.copy([], 2), send(moved.new_servers, moved.topic, messages(0, 9), 1))[0],
        "has records in [1], which were not read",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_uncertain_position_is_refused_with_what_to_give(moved: Moved, case: str) -> None:
    copy, message = REFUSED[case]
    copy(moved)
    options = [] if case == "nothing_says_it" else ["--old-connection", "old"]
    result = moved.move(*options, "--yes")
    assert message in str(result.exception)
    assert moved.batches.app.ledger.head(moved.batches.stream).offsets == {(moved.topic, 0): 7}


def test_checkpoint_file_is_compared_with_the_old_cluster(moved: Moved) -> None:
    moved.copy(messages(4, 10))
    moved.file.write_text("partition,old,new\n0,5,1\n0,7,3\n")
    assert (
        "goes on at 3 in place of 7: by the checkpoints, not compared."
        in moved.move("--checkpoints", str(moved.file)).output
    )
    compared = moved.move("--checkpoints", str(moved.file), "--old-connection", "old", "--yes")
    assert compared.exit_code == 0
    assert moved.next_range() == (3, 6)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,5,1", "Add the line `0,7,NEW`"),
        ("0,7,2", "the records around the two differ"),
        ("0,7,9", "is 9 in the new topic, which has 0 to 6"),
        ("0,seven,3", "is not `partition,old offset,new offset`"),
        ("0,7,3\n0,7,4", "offset 7 has two new offsets"),
    ],
)
def test_checkpoints_that_cannot_be_are_refused(moved: Moved, line: str, message: str) -> None:
    moved.copy(messages(4, 10))
    moved.file.write_text(f"# of group x\n{line}\n")
    result = moved.move("--checkpoints", str(moved.file), "--old-connection", "old", "--yes")
    assert message in str(result.exception)
    assert moved.batches.app.ledger.recoveries(moved.batches.stream) == []


def test_later_state_positions_move_before_the_new_offset() -> None:
    rows = pa.table(
        {
            "topic": ["t", "t", "t", "other"],
            "partition": pa.array([0, 0, 1, 0], pa.int32()),
            "offset": pa.array([9, 2, 7, 9], pa.int64()),
            "key": ["a", "b", "c", "d"],
        }
    )
    moved = lower_positions(rows, {("t", 0): 3, ("t", 1): 0})
    assert moved.select(["offset", "key"]).to_pylist() == [
        {"offset": 2, "key": "a"},
        {"offset": -1, "key": "c"},
    ]


@pytest.mark.spark
def test_records_of_the_new_topic_are_all_read(world: World, new_broker: KafkaBroker) -> None:
    """The state has positions that are larger than the new topic's offsets."""
    sink = f"{{kind: kafka, topic: {world.sink}, with_key: true}}"
    world.write_pipeline(**{sink: "{kind: table}", "emit: {on: change, equal: exact}": "emit: {on: update}"})
    world.stock(1, 1, 1, 1, 1)
    world.run()
    environment = world.environment | {
        "TIDEGATE_KAFKA": new_broker.bootstrap_servers,
        "TIDEGATE_KAFKA_OLD": world.servers,
    }
    old, world.servers = world.servers, new_broker.bootstrap_servers
    world.create(world.source)
    world.send(stock_event(1))  # the last of the five
    world.send(stock_event(0), stock_event(0, product=2))
    assert old != world.servers
    world.app = App.from_environment(environment)
    moved = recover(environment, "availability", "--choose", "move", "--old-connection", "old", "--yes")
    assert moved.exit_code == 0, moved.output
    outcome = run_batch(world.app, world.pipeline, Trigger("next", 10**13), world.open_session)
    assert outcome.plan is not None
    counts = world.counts(outcome.plan.seq)
    assert (counts["read"], counts["deduplicated"]) == (2, 0)
    state = {row["key"]: row["emitted"] for row in read_state(world.app, world.stream).to_pylist()}
    assert state == {key_of(): {"isAvailable": False}, key_of(product=2): {"isAvailable": False}}
