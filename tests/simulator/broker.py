"""Kafka in memory: logs, and the transactions of its coordinator. Every method is atomic.

As Kafka has it: a commit is decided at the coordinator, and the markers that end the transaction in each
partition come later; `init_producer` waits for them; a newer producer, and the timeout, fence the older one;
and what a `read_committed` reader sees ends at the first offset of any transaction that is open in the
partition, whosever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka.errors import InvalidProducerEpochError, ProducerFencedError

from tidegate.kafka.topic_facts import EpochEnd

Partition = tuple[str, int]
Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """A record that a producer sends."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


@dataclass(eq=False)
class Transaction:
    """One transaction of a producer. Compared by identity."""

    number: int
    deadline: float
    partitions: list[Partition] = field(default_factory=list)
    unmarked: int = 0
    commits: bool = False


@dataclass
class Log:
    """A partition: records and markers (None) with the transaction that each is of."""

    entries: list[tuple[Record | None, Transaction | None]] = field(default_factory=list)
    open: dict[Transaction, int] = field(default_factory=dict)
    aborted: set[Transaction] = field(default_factory=set)
    start: int = 0
    """What lies before was deleted by retention: it is kept here for the checks only."""
    epochs: dict[int, int] = field(default_factory=lambda: {0: 0})
    """Leader epoch -> the offset of its first record, as far as there is one; the newest is the leader's."""

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, records: Sequence[Record], transaction: Transaction | None = None) -> None:
        if transaction is not None:
            self.open.setdefault(transaction, self.end)
        self.entries += [(record, transaction) for record in records]

    def mark(self, transaction: Transaction) -> None:
        """End a transaction here."""
        self.open.pop(transaction, None)
        if not transaction.commits:
            self.aborted.add(transaction)
        self.entries.append((None, transaction))

    def elect(self) -> None:
        """A new leader, which has all that the one before had."""
        newest = max(self.epochs)
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < self.end}
        self.epochs[newest + 1] = self.end

    def truncated(self, offset: int) -> Log:
        """Return the log of a new leader that lacks everything from an offset on."""
        first = {transaction: at for transaction, at in self.open.items() if at < offset}
        log = Log(self.entries[:offset], first, set(self.aborted), self.start, dict(self.epochs))
        log.elect()
        return log

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Answer where an epoch ends, as a partition's leader does."""
        if epoch == max(self.epochs):
            return EpochEnd(epoch, self.end)
        newer = [start for later_epoch, start in self.epochs.items() if later_epoch > epoch]
        if epoch < 0 or not newer:
            return EpochEnd(-1, -1)
        return EpochEnd(
            max((earlier_epoch for earlier_epoch in self.epochs if earlier_epoch <= epoch), default=epoch),
            min(newer),
        )

    def committed(self, start: int, end: int) -> Iterator[tuple[int, Record]]:
        """Offset and record, as `read_committed` sees them."""
        for offset in range(start, min(end, self.stable_end)):
            record, transaction = self.entries[offset]
            if record is not None and transaction not in self.aborted:
                yield offset, record

    def compact(self, until: int) -> int:
        """Drop the records before offset `until` that a later record of their key replaces, and aborted
        ones, as Kafka's log cleaner does. Returns the number of dropped records.
        """
        until = min(until, self.stable_end)
        newest = {record.key: offset for offset, record in self.committed(0, until)}
        dropped = 0
        for offset, (record, transaction) in enumerate(self.entries[:until]):
            if record is not None and newest.get(record.key) != offset:
                self.entries[offset] = None, transaction
                dropped += 1
        return dropped


@dataclass
class Producer:
    """The coordinator's state of a transactional id."""

    epoch: int = -1
    transaction: Transaction | None = None
    ending: bool = False


@dataclass
class Broker:
    """A Kafka cluster in memory.

    `later(act)` calls a function after a while, `at(when, act)` at an instant; `now` is in seconds. `watch`
    gets each commit: its transactional id and its records.
    """

    now: Callable[[], float]
    later: Callable[[Callable[[], None]], None]
    at: Callable[[float, Callable[[], None]], None] = lambda *_: None
    watch: Callable[[str, Iterator[Record]], None] = lambda *_: None
    topics: dict[str, list[Log]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)
    fenced: int = 0

    def create(self, topic: str, partitions: int) -> None:
        self.topics.setdefault(topic, [Log() for _ in range(partitions)])
        self.ids.setdefault(topic, f"id-{topic}")

    def recreate(self, topic: str) -> None:
        """Delete a topic and create it again. Who has its logs keeps those of before."""
        self.topics[topic] = [Log() for _ in self.topics[topic]]
        self.ids[topic] += "-again"

    def truncate(self, at: Partition, offset: int) -> None:
        """A leader takes over that lacks the end of a log. Who has the topic's logs keeps those of before."""
        logs = list(self.topics[at[0]])
        logs[at[1]] = logs[at[1]].truncated(offset)
        self.topics[at[0]] = logs

    def log(self, at: Partition) -> Log:
        return self.topics[at[0]][at[1]]

    def init_producer(self, name: str) -> int | None:
        """A new epoch; None while an earlier transaction is being ended: ask again."""
        producer = self.producers.setdefault(name, Producer())
        if producer.transaction is not None:
            if not producer.ending:
                self._end(producer, commits=False, fence=True)
            return None
        producer.epoch += 1
        return producer.epoch

    def append(
        self, name: str, epoch: int, number: int, timeout: float, at: Partition, records: Sequence[Record]
    ) -> bool:
        """Add to the producer's transaction, beginning it if need be. False: the one before is still ending.

        A late request for a transaction that is over is refused (KIP-890).
        """
        producer = self._current(name, epoch)
        if producer.ending:
            return False
        transaction = producer.transaction
        if transaction is None:
            transaction = producer.transaction = Transaction(number, self.now() + timeout)
            self.at(transaction.deadline, self.expire)
        if transaction.number != number:
            raise InvalidProducerEpochError("the transaction is over")
        if at not in transaction.partitions:
            transaction.partitions.append(at)
        self.log(at).append(records, transaction)
        return True

    def commit(self, name: str, epoch: int, number: int) -> None:
        """Decide a transaction. The markers follow."""
        producer = self._current(name, epoch)
        transaction = producer.transaction
        if transaction is None or transaction.number != number:
            raise InvalidProducerEpochError("the transaction is over")
        if not producer.ending:
            self.watch(name, self._records(transaction))
            self._end(producer, commits=True)

    def abort(self, name: str, epoch: int, number: int) -> None:
        """Undo a transaction, if it was begun and is not decided yet. The markers follow."""
        producer = self._current(name, epoch)
        transaction = producer.transaction
        if transaction is not None and transaction.number == number and not producer.ending:
            self._end(producer, commits=False)

    def _records(self, transaction: Transaction) -> Iterator[Record]:
        for at in transaction.partitions:
            for record, owner in self.log(at).entries:
                if record is not None and owner is transaction:
                    yield record

    def expire(self) -> None:
        """Abort the transactions whose time is up."""
        for producer in self.producers.values():
            transaction = producer.transaction
            if transaction is not None and not producer.ending and transaction.deadline <= self.now():
                self._end(producer, commits=False, fence=True)

    def _current(self, name: str, epoch: int) -> Producer:
        producer = self.producers[name]
        if producer.epoch != epoch:
            self.fenced += 1
            raise ProducerFencedError("there is a newer producer")
        return producer

    def _end(self, producer: Producer, commits: bool, fence: bool = False) -> None:
        transaction = producer.transaction
        assert transaction is not None
        producer.ending, producer.epoch = True, producer.epoch + fence
        transaction.commits, transaction.unmarked = commits, len(transaction.partitions)
        for at in transaction.partitions:
            self.later(lambda at=at: self._mark(producer, transaction, at))  # type: ignore[misc]

    def _mark(self, producer: Producer, transaction: Transaction, at: Partition) -> None:
        self.log(at).mark(transaction)
        transaction.unmarked -= 1
        if not transaction.unmarked:
            producer.transaction, producer.ending = None, False
