"""librdkafka's producer and consumer, and kafka-python's admin client, on the broker in memory: as much as
tidegate uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException, Message
from kafka.admin import OffsetSpec
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaTimeoutError,
    ProducerFencedError,
    TopicAlreadyExistsError,
)
from kafka.protocol.consumer import IsolationLevel

from kafka import TopicPartition
from tests.simulator.broker import Broker, Partition, Record
from tests.simulator.world import World
from tidegate.kafka.topic_facts import EpochEnd

Result = TypeVar("Result")
_RETRY_SECONDS = 0.3
_LONGEST_RETRY_SECONDS = 2.4
_POLL_SECONDS = 5.0


class OffsetAndTimestamp(NamedTuple):
    """An offset, as the admin client tells it."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class Client:
    """A connection of the running process."""

    def __init__(self, world: World, broker: Broker) -> None:
        self._world = world
        self._broker = broker

    def _ask(self, name: str, act: Callable[[], Result]) -> Result:
        return self._world.effect(f"kafka.{name}", act, KafkaTimeoutError)

    def _until(self, name: str, act: Callable[[], Any]) -> Any:
        """Ask again while the answer is that it is too early."""
        wait = _RETRY_SECONDS
        while (answer := self._ask(name, act)) in (None, False):
            self._world.sleep(wait)
            wait = min(2 * wait, _LONGEST_RETRY_SECONDS)
        return answer

    def close(self, timeout: float | None = None) -> None:
        """Nothing that anybody could see."""


class SimProducer(Client):
    """A producer in place of `confluent_kafka.Producer`, always transactional: after an error it accepts
    nothing more.
    """

    def __init__(self, world: World, broker: Broker, config: Mapping[str, Any]) -> None:
        super().__init__(world, broker)
        self._name: str = config["transactional.id"]
        self._timeout = config["transaction.timeout.ms"] / 1000
        self._epoch = -1
        self._number = 0
        self._waiting: dict[Partition, list[Record]] = {}
        self._error: KafkaException | None = None
        self._is_ending = False

    def init_transactions(self, timeout: float) -> None:
        with CLIENT_ERRORS:
            self._epoch = self._until("init_producer", lambda: self._broker.init_producer(self._name))

    def list_topics(self, topic: str, timeout: float) -> None:
        with CLIENT_ERRORS:
            self._ask("metadata", lambda: None)

    def begin_transaction(self) -> None:
        self._number += 1

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int = -1,
        callback: None = None,
        on_delivery: None = None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        at = (topic, crc32(key or b"") % len(self._broker.topics[topic]) if partition == -1 else partition)
        self._waiting.setdefault(at, []).append(Record(key, value, timestamp, tuple(headers)))

    def flush(self, timeout: float) -> int:
        """Append the records that wait, and return 0: records that cannot be delivered fail, and all others
        with them.
        """
        waiting, self._waiting = self._waiting, {}
        for at, records in waiting.items():
            try:
                with ERRORS_THAT_ABORT:
                    self._append(at, records)
            except KafkaException as error:
                self._error = self._error or error
        return 0

    def _append(self, at: Partition, records: list[Record]) -> None:
        transaction = (self._name, self._epoch, self._number, self._timeout)
        self._until(f"produce {at[0]}[{at[1]}]", lambda: self._broker.append(*transaction, at, records))

    def commit_transaction(self, timeout: float) -> None:
        if self._error is not None:
            raise self._error
        self._is_ending = True
        transaction = (self._name, self._epoch, self._number)
        with CLIENT_ERRORS:
            self._ask("end_transaction", lambda: self._broker.commit(*transaction))
        self._is_ending = False

    def abort_transaction(self, timeout: float) -> None:
        if self._epoch < 0 or self._is_ending:  # a call that has no answer is still under way
            raise KafkaException(KafkaError(KafkaError._CONFLICT))
        transaction = (self._name, self._epoch, self._number)
        with CLIENT_ERRORS:
            self._ask("abort_transaction", lambda: self._broker.abort(*transaction))


class ClientErrors:
    """Raise the broker's errors as librdkafka raises them; without an answer to a record its transaction
    ends.
    """

    def __init__(self, requires_abort: bool = False) -> None:
        self._requires_abort = requires_abort

    def __enter__(self) -> None:
        """Nothing: a class costs a third of what `contextmanager` does, and each seed has hundreds."""

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if isinstance(error, (ProducerFencedError, InvalidProducerEpochError)):
            raise KafkaException(KafkaError(KafkaError._FENCED, str(error), True)) from error
        if isinstance(error, KafkaTimeoutError):
            aborts = self._requires_abort
            timed_out = KafkaError(KafkaError._TIMED_OUT, str(error), False, not aborts, aborts)
            raise KafkaException(timed_out) from error


CLIENT_ERRORS, ERRORS_THAT_ABORT = ClientErrors(), ClientErrors(requires_abort=True)


class SimConsumer(Client):
    """A consumer in place of `confluent_kafka.Consumer`, of one assigned partition."""

    def __init__(self, world: World, broker: Broker, options: Mapping[str, Any]) -> None:
        super().__init__(world, broker)
        self._committed = options["isolation.level"] == "read_committed"
        self._at = ck.TopicPartition("")
        self._position = 0

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        (self._at,) = partitions
        self._position = self._at.offset

    def consume(self, most: int, timeout: float) -> list[Message]:
        """Return all records that follow, and then the end of the partition, as one more event."""
        try:
            messages = self._ask("consumer.poll", self._poll)
        except KafkaTimeoutError:  # librdkafka asks again, from the same offset
            messages = [self._end(self._position)]
        reached = messages[-1].offset()
        if self._position == reached:
            self._world.sleep(_POLL_SECONDS)
        self._position = reached
        return messages

    def get_watermark_offsets(self, at: ck.TopicPartition, timeout: float) -> tuple[int, int]:
        log = self._broker.log((at.topic, at.partition))
        return log.start, log.end

    def _poll(self) -> list[Message]:
        log, start = self._broker.log((self._at.topic, self._at.partition)), self._position
        end = max(start, log.stable_end if self._committed else log.end)
        if self._committed:
            records = log.committed(start, end)
        else:
            whole = enumerate(log.entries[start:end], start)
            records = ((offset, record) for offset, (record, _) in whole if record is not None)
        return [*(self._record(offset, record) for offset, record in records), self._end(end)]

    def _record(self, offset: int, record: Record) -> Message:
        return Message(self._at.topic, self._at.partition, offset, record.key, record.value)

    def _end(self, offset: int) -> Message:
        end = KafkaError(KafkaError._PARTITION_EOF)
        return Message(self._at.topic, self._at.partition, offset, error=end)


class SimAdmin(Client):
    """An admin client in place of `kafka.KafkaAdminClient`."""

    def __init__(self, world: World, broker: Broker, **_: Any) -> None:
        super().__init__(world, broker)

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        def act() -> list[dict[str, Any]]:
            logs = self._broker.topics.get(topics[0], [])
            partitions = [{"partition_index": number} for number in range(len(logs))]
            topic_id = self._broker.ids.get(topics[0])
            return [{"error_code": 0 if logs else 3, "partitions": partitions, "topic_id": topic_id}]

        return self._ask("describe", act)

    def list_partition_offsets(
        self, specs: Mapping[TopicPartition, int], isolation_level: int = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        committed = isolation_level == IsolationLevel.READ_COMMITTED

        def act() -> dict[TopicPartition, OffsetAndTimestamp]:
            return {at: self._offset(at, spec, committed) for at, spec in specs.items()}

        return self._ask("offsets", act)

    def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
        """Topics have no limits, and forget nothing."""
        (resource,) = resources
        settings = {"cleanup.policy": {"value": "delete"}}
        return self._ask("configs", lambda: {"topic": {resource.name: settings}})

    def epoch_ends(self, epochs: Mapping[Partition, int]) -> dict[Partition, EpochEnd]:
        """Return the epochs' ends, in place of the requests to the partitions' leaders."""

        def act() -> dict[Partition, EpochEnd]:
            return {at: self._broker.log(at).epoch_end(epoch) for at, epoch in epochs.items()}

        return self._ask("epochs", act)

    def create_topics(self, topics: list[Any], raise_errors: bool, **options: bool) -> None:
        def act() -> None:
            if options.get("validate_only"):
                return
            if topics[0].name in self._broker.topics:
                raise TopicAlreadyExistsError
            self._broker.create(topics[0].name, topics[0].num_partitions)

        self._ask("create_topics", act)

    def open_transactions(self) -> list[Any]:
        """Return no open transactions: the product only reports them."""
        return self._ask("open_transactions", list)

    def _offset(self, at: TopicPartition, spec: int, committed: bool) -> OffsetAndTimestamp:
        log = self._broker.log((at.topic, at.partition))
        if spec == OffsetSpec.EARLIEST:
            return OffsetAndTimestamp(log.start, -1)
        if spec == OffsetSpec.LATEST:
            return OffsetAndTimestamp(log.stable_end if committed else log.end, -1, max(log.epochs))
        for offset, (record, _) in enumerate(log.entries[log.start :], log.start):
            if record is not None and record.timestamp_ms >= spec:
                return OffsetAndTimestamp(offset, record.timestamp_ms)
        return OffsetAndTimestamp(-1, -1)
