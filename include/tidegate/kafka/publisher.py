"""Publication of a stream's batches to one Kafka topic, exactly once.

The messages of a batch have a fixed order, and go out in transactions, each with the progress record in it:
see `kafka.shard`. A sink writes its first progress record before it sends a message, so a missing record was
lost.

A large batch is cut into shards, which several processes send at the same time:

1. The sink's record gets the next *round*, and each shard's record the batch and that round.
2. The sink's record says in how many shards the batch is sent. From now on, and only then, shards send.
3. When all shards are done, the sink's record says so.

Only the process that has written the sink's record in step 1 writes the records of shards, and rounds only
grow: a process that wakes up later finds a later round, and stops. Two processes that send the same round
send the same messages, under the same transactional ids, so that one fences the other. All batches before are
out, and none after it begins before step 3, so a key's messages stay in order, whatever the number of shards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import NamedTuple

from tidegate.errors import Fenced, ProgressLost, SinkAhead
from tidegate.kafka.config import PROGRESS_TOPIC
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.messages import CHUNK_RECORDS
from tidegate.kafka.producer import TransactionalProducer
from tidegate.kafka.progress import Progress, ProgressRecord
from tidegate.kafka.shard import Messages, SendShards, Shard, ShardTask, send_here

RequireCommitted = Callable[[int, Callable[[str], bool]], None]
"""A function that raises LedgerMismatch unless the predicate is true of the name of the batch's attempt."""


@dataclass(frozen=True)
class DecidedBatch:
    """The messages of a decided batch, and how they are sent.

    Args:
        attempt: the name of the attempt that computed it.
        messages: returns the batch's messages from the n-th on.
        shards: the number of shards in which the batch is sent, if nothing of it is sent yet.
        cut: takes a number of shards, and returns the messages of each. A shard has all messages of its keys.
        send: sends shards.
    """

    seq: int
    attempt: str
    messages: Messages
    shards: int = 1
    cut: Callable[[int], Sequence[Messages]] | None = None
    send: SendShards = send_here


class ShownProgress(NamedTuple):
    """A progress that replaces a lost record, with those of the shards if a batch is sent in part."""

    progress: Progress
    shards: tuple[Progress, ...] = ()


class KafkaPublisher:
    """A publisher of a stream's batches to one topic.

    `log` answers questions to Kafka. `name` is the sink's transactional id; those of shards begin with it.
    `require_committed` checks that the ledger has committed the batch of the progress record.

    Example:
        publisher = KafkaPublisher(log, name, "changes", require_committed)
        sent = publisher.publish(DecidedBatch(seq, attempt, messages), last_published)
    """

    def __init__(
        self,
        log: KafkaLog,
        name: str,
        topic: str,
        require_committed: RequireCommitted,
        chunk_records: int = CHUNK_RECORDS,
    ) -> None:
        self._require_committed = require_committed
        self._log = log
        self._topic = topic
        self._chunk_records = chunk_records
        self._own = Shard(log, name, topic, chunk_records)

    def publish(
        self,
        batch: DecidedBatch,
        last_published: int,
        begun: Callable[[], object] | None = None,
    ) -> int:
        """Send a batch, or the rest of it. Returns the number of records that it sent; for a batch in shards,
        the number that this try and earlier ones sent.

        Args:
            last_published: the newest batch of which, by the ledger, this sink has sent a record; 0 if none.
            begun: for a sink that the ledger does not have yet, and that has sent nothing. It is called when
                the sink has its first progress record, to record that in the ledger.

        Raises ProgressLost, ProgressUnreadable; LedgerMismatch if the sink has sent a batch that this ledger
        has not committed; Fenced if a newer publisher is ahead; OutcomeUnknown, BrokerUnavailable;
        TimestampRefused, RecordTooLarge, SinkRefused if the topic refuses a record.
        """

        def send(producer: TransactionalProducer) -> int:
            nonlocal begun
            record = self._own.read()
            if begun is not None:
                record = self._begin(producer, batch.seq, record)
                begun()
                # The record exists now: if this is called again, the sink has begun.
                begun = None
            return self._publish(producer, record, batch, last_published)

        return self._own.persist(send)

    def _begin(self, producer: TransactionalProducer, seq: int, record: ProgressRecord) -> ProgressRecord:
        """Write the first progress record unless it exists: batch `seq` will be the sink's first.

        A restored ledger can have lost that a sink began. The batches that the sink has sent since must
        then be committed in this ledger.
        """
        first = Progress(seq - 1, 0, done=True)
        if record.progress is None:
            self._own.write(producer, first, record.place)
            return replace(record, progress=first)
        self.check_committed(record.progress)
        if replace(record.progress, round=0) != first and not record.progress.attempt:
            raise self._ahead(seq, record.progress)
        return record

    def _publish(
        self,
        producer: TransactionalProducer,
        record: ProgressRecord,
        batch: DecidedBatch,
        last_published: int,
    ) -> int:
        """Send the rest of a batch."""
        progress = record.progress
        if progress is None or last_published < batch.seq:
            progress = self.check(progress, last_published)
        self.check_committed(progress)
        if progress.seq > batch.seq:
            raise self._ahead(batch.seq, progress, SinkAhead)
        if not progress.lacks(batch.seq):
            return 0
        # A batch that has begun goes on as it began, whatever the number of shards would be now.
        shards = progress.shards if progress.seq == batch.seq else batch.shards
        if shards > 1:
            return self._publish_in_shards(producer, record, batch, shards)
        unsent = Progress(batch.seq, 0, False, batch.attempt, progress.round)
        return self._own.send_rest(producer, record, unsent, batch.messages)

    def _publish_in_shards(
        self, producer: TransactionalProducer, record: ProgressRecord, batch: DecidedBatch, number: int
    ) -> int:
        """Let the shards of a batch be sent, and record that they are."""
        progress = record.progress
        assert progress is not None, "the sink has begun"
        assert batch.cut is not None, "a batch in shards can be cut"
        if progress.seq < batch.seq:
            progress = self._begin_shards(producer, record, batch, number)
        unsent = replace(progress, sent=0, shards=0)
        tasks = [
            ShardTask(self._log.config, self._name(shard), self._topic, unsent, messages, self._chunk_records)
            for shard, messages in enumerate(batch.cut(number))
        ]
        sent = sum(batch.send(tasks))
        self._own.write(producer, replace(progress, sent=sent, done=True), record.place)
        return sent

    def _begin_shards(
        self, producer: TransactionalProducer, record: ProgressRecord, batch: DecidedBatch, number: int
    ) -> Progress:
        """Write the records of a new round: none of its shards has sent anything."""
        before = record.progress
        assert before is not None, "the sink has begun"
        # First, and in this producer's epoch: no other process can begin the same round.
        before = replace(before, round=before.round + 1)
        self._own.write(producer, before, record.place)
        unsent = Progress(batch.seq, 0, False, batch.attempt, before.round)
        for shard in range(number):
            self._shard(shard).begin(unsent)
        begun = replace(unsent, shards=number)
        self._own.write(producer, begun, record.place)
        return begun

    def _name(self, shard: int) -> str:
        return f"{self._own.name}/{shard}"

    def _shard(self, shard: int) -> Shard:
        return Shard(self._log, self._name(shard), self._topic, self._chunk_records)

    def check_admission(self) -> None:
        """Raise the error that would stop any publication, without sending anything.

        Like `publish`, it aborts or completes the transaction of an earlier instance. Raises SettingsInvalid
        for a missing right or a transaction timeout that the broker does not allow, BrokerUnavailable.
        """
        with self._own.opened():
            pass

    def rewrite_progress(
        self,
        is_intact: Callable[[Progress], bool],
        find: Callable[[Progress | None], ShownProgress],
    ) -> Progress:
        """Put what `find` returns in the place of a record that is not intact, and return the progress.

        Args:
            is_intact: It gets the sink's record after other publishers of the sink are fenced.
            find: It gets the same record after all shards are fenced, too; None if the record is missing. For
                a batch in shards, `sent` is the number of messages that all shards have sent.

        Raises ProgressUnreadable, Fenced, OutcomeUnknown, BrokerUnavailable, and what `find` raises.
        """
        with self._own.opened() as producer:
            record = self._own.read()
            if record.progress is not None and is_intact(record.progress):
                return record.progress
            stopped = self._stop_shards(record.progress)
            before = _with_sent(record.progress, stopped)
            progress, parts = find(before)
            # A later round than any before: nobody who began one of them can go on.
            last_round = max((part.round for part in (before, *stopped) if part is not None), default=0)
            progress = replace(progress, round=last_round + 1)
            for shard, part in enumerate(parts):
                self._shard(shard).replace(replace(part, round=progress.round))
            self._own.write(producer, progress, record.place)
        return progress

    def _stop_shards(self, progress: Progress | None) -> list[Progress | None]:
        """Fence all shards that were ever begun, and return what each had sent; None: its record is lost."""
        least = progress.shards if progress is not None else 0
        exist = takewhile(lambda shard: self._shard(shard).progress() is not None, count(least))
        return [self._shard(shard).stop() for shard in (*range(least), *exist)]

    def progress(self) -> Progress | None:
        """Return the sink's last committed progress; None if it has none, or the topic does not exist.

        Raises ProgressUnreadable, BrokerUnavailable.
        """
        return self._own.progress()

    def check_committed(self, progress: Progress) -> None:
        """Raise LedgerMismatch if the sink has sent a batch that the ledger has not committed."""
        # Without an attempt nothing was sent yet, or a person has stated the progress.
        self._require_committed(progress.seq, lambda name: progress.attempt in ("", name))

    def _ahead(self, seq: int, progress: Progress, error: type[Fenced] = Fenced) -> Fenced:
        return error(
            f"{self._own.name} is at batch {seq}, but topic {PROGRESS_TOPIC} says that it has sent "
            f"{progress.sent} records of attempt {progress.attempt or '(none)'} of batch {progress.seq}",
            "A newer publisher went ahead; nothing was sent by this one.",
        )

    def check(self, progress: Progress | None, last_published: int) -> Progress:
        """Return the progress.

        Raises ProgressLost if it is missing or older than the ledger says, or lacks the record of a shard.
        """
        if progress is None or progress.lacks(last_published):
            says = "is missing" if progress is None else f"is old: it says batch {progress.seq}"
            raise ProgressLost(
                f"The progress record of {self._own.name} in topic {PROGRESS_TOPIC} {says}; "
                + (
                    f"batch {last_published} was published" if last_published else "its first batch was begun"
                ),
                "Reconcile it with the output topic.",
            )
        for shard in map(self._shard, range(0 if progress.done else progress.shards)):
            part = shard.progress()
            if part is None or part.round < progress.round:
                raise shard.lost(progress)
        return progress


def _with_sent(progress: Progress | None, stopped: Sequence[Progress | None]) -> Progress | None:
    """Return the progress of a batch in shards with the number of messages that its shards have sent."""
    if progress is None or progress.done or not progress.shards:
        return progress
    parts = [part for part in stopped if part is not None and part.round == progress.round]
    return replace(progress, sent=sum(part.sent for part in parts))
