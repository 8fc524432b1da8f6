"""Start runs when records wait (`schedule: {on_data: …}`): an asset per DAG, which a trigger watches.

The triggers of a Kafka cluster share one stream of the ends of their topics, so the triggerer asks each
cluster once a second, however many pipelines read it. A trigger compares the ends with the offsets in the
ledger, which say what a run reads. So an event that is lost or sent twice changes no result: a lost one is
sent again, and the run of a second one finds nothing to read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from tidegate_airflow.connections import connection_environment, ledger_environment

if TYPE_CHECKING:
    from tidegate.kafka.log import KafkaLog
    from tidegate.ledger import Head, Ledger, Offsets
    from tidegate.model.pipeline import Pipeline
    from tidegate.model.schedule import Backlog

log = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0
LONGEST_WAIT_S = 60.0
"""The longest time between two tries to reach a broker or a ledger that does not answer."""
FIRST_PAUSE_S = 60.0
"""How long a started run may take until its first commit before another run is started."""
LONGEST_PAUSE_S = 600.0
"""A run that fails at once must not start once a second: each pause is twice the one before, up to this."""


def waiting_asset(dag_id: str, pipeline: Pipeline, rule: Backlog) -> Asset:
    """Return the asset that is updated when records wait for a DAG.

    Example: its URI is `tidegate-records://orders` for the DAG `orders`.
    """
    from tidegate.model.sources import TopicPattern

    topics: list[str] = []
    patterns: list[str] = []
    for source in pipeline.sources.values():
        if isinstance(source.selection, TopicPattern):
            patterns.append(source.selection.pattern)
        else:
            topics += source.selection
    trigger = RecordsTrigger(
        pipeline=pipeline.pipeline,
        generation=pipeline.generation,
        connection=next(iter(pipeline.sources.values())).connection,
        topics=topics,
        patterns=patterns,
        records=rule.records,
        or_after_ms=rule.or_after_ms,
    )
    return Asset(
        name=f"records that wait for {dag_id}",
        uri=f"tidegate-records://{dag_id}",
        watchers=[AssetWatcher(name=f"backlog of {dag_id}", trigger=trigger)],
    )


class BacklogWatch:
    """Decides when the records that wait for one stream must start a run. Clocks are in seconds.

    Call `may_be_due` at each look at the topics. If it returns True, read the stream's head and call `due`.
    Offsets of heads only rise, so the backlog after the last known head is never too small: an idle or small
    backlog costs no question to the ledger.

    A run also starts for a batch that its own run has left unfinished, even if no record waits.

    Args:
        records: so many records start a run.
        or_after_s: the oldest record starts a run when it has waited so long.
    """

    def __init__(self, records: int, or_after_s: float) -> None:
        self._records = records
        self._or_after_s = or_after_s
        self._head: Head | None = None
        # Records that wait when the watch begins may have waited for any time.
        self._since = float("-inf")
        self._started: float | None = None
        self._pause = FIRST_PAUSE_S
        self._is_unfinished = False

    def may_be_due(self, ends: Offsets, now: float) -> bool:
        """Return whether a run may have to start, by what the last call of `due` was given."""
        if self._head is None or self._is_unfinished or _ends_before(ends, self._head):
            return True
        return self._is_over(self._waiting(ends, self._head, now), now)

    def due(
        self, ends: Offsets, head: Head, now: float, *, is_busy: bool, is_unfinished: bool = False
    ) -> int | None:
        """Return how many offsets wait, if a run must start for them now; otherwise None.

        Args:
            ends: the last stable offsets of the stream's topics.
            head: the stream's last committed batch.
            now: the clock.
            is_busy: whether a run holds the stream's lease.
            is_unfinished: whether a batch is planned and not committed, or committed and not published.
        """
        if self._head is None or head.seq != self._head.seq:
            self._note_batch(head)
        if is_unfinished != self._is_unfinished:
            # The batch's own run has a pause to finish it, by its retries.
            self._started, self._pause = now if is_unfinished else None, FIRST_PAUSE_S
            self._is_unfinished = is_unfinished
        waiting = self._waiting(ends, head, now)
        # Only a run finds out whether the log was created anew or truncated, and halts with the remedy.
        is_needed = is_unfinished or _ends_before(ends, head) or self._is_over(waiting, now)
        if is_busy or not is_needed:
            return None
        if self._started is not None:
            if now < self._started + self._pause:
                return None
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        self._started = now
        return waiting

    def _note_batch(self, head: Head) -> None:
        """Note a new batch. What it left unread came after its run was started."""
        self._head = head
        if self._started is not None:
            self._since = max(self._since, self._started)
        self._started, self._pause = None, FIRST_PAUSE_S

    def _waiting(self, ends: Offsets, head: Head, now: float) -> int:
        from tidegate.ledger.report import lag

        waiting = lag(head, ends)
        if not waiting:
            self._since = now
        return waiting

    def _is_over(self, waiting: int, now: float) -> bool:
        return bool(waiting) and (waiting >= self._records or now - self._since >= self._or_after_s)


def _ends_before(ends: Offsets, head: Head) -> bool:
    """Return whether a partition ends before the offset up to which it was read: it is another log."""
    return any(end < head.offsets.get(place, 0) for place, end in ends.items())


class RecordsTrigger(BaseEventTrigger):  # type: ignore[misc]  # Airflow is not typed
    """Fires when a stream's backlog must start a run.

    Args:
        pipeline: the pipeline.
        generation: its generation.
        connection: the Kafka connection's name in the pipeline file; None for the one without a name.
        topics: names of topics.
        patterns: regular expressions for whole names of topics.
        records: so many records start a run.
        or_after_ms: the oldest record starts a run when it has waited so long, in milliseconds.
    """

    def __init__(
        self,
        pipeline: str,
        generation: int,
        connection: str | None,
        topics: Sequence[str],
        patterns: Sequence[str],
        records: int,
        or_after_ms: int,
    ) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.generation = generation
        self.connection = connection
        self.topics = topics
        self.patterns = patterns
        self.records = records
        self.or_after_ms = or_after_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("pipeline", "generation", "connection", "topics", "patterns", "records", "or_after_ms")
        return f"{__name__}.RecordsTrigger", {name: getattr(self, name) for name in names}

    def shared_stream_key(self) -> tuple[str, str]:
        return ("tidegate", self.connection or "")

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Offsets]:
        async for ends in _ends_of_cluster(kwargs["connection"]):
            yield ends

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Offsets]
    ) -> AsyncIterator[TriggerEvent]:
        watch = BacklogWatch(self.records, self.or_after_ms / 1000)
        stream = _LedgerStream(self.pipeline, self.generation)
        selection = _Selection(self.topics, self.patterns)
        with _watched(self.connection, selection):
            async for ends in shared_stream:
                own = {at: end for at, end in ends.items() if selection.reads(at[0])}
                if not watch.may_be_due(own, time.monotonic()):
                    continue
                # in a thread: database drivers block, and the triggerer runs all triggers in one loop
                progress = await asyncio.to_thread(stream.progress)
                if progress is None:
                    continue
                waiting = watch.due(
                    own,
                    progress.head,
                    time.monotonic(),
                    is_busy=progress.is_busy,
                    is_unfinished=progress.is_unfinished,
                )
                if waiting is not None:
                    yield TriggerEvent({"waiting": waiting})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        ends = self.open_shared_stream({"connection": self.connection})
        async for event in self.filter_shared_stream(ends):
            yield event


@dataclass(frozen=True)
class _Progress:
    """The head of a stream, and whether a run holds its lease, or has left a batch unfinished."""

    head: Head
    is_busy: bool = False
    is_unfinished: bool = False


class _LedgerStream:
    """A stream in the ledger, read with the settings that this process has when the ledger is opened."""

    def __init__(self, pipeline: str, generation: int) -> None:
        self._key = (pipeline, generation)
        self._ledger: Ledger | None = None
        self._next_try, self._wait = 0.0, LOOK_EVERY_S

    def progress(self) -> _Progress | None:
        """Return what the ledger has of the stream; None while it does not answer."""
        from tidegate.errors import TidegateError
        from tidegate.ledger import Head, Stream
        from tidegate.ledger.stream_condition import read_facts

        if time.monotonic() < self._next_try:
            return None
        stream = Stream(*self._key)
        try:
            facts = read_facts(self._opened(), [stream])[stream]
        except TidegateError as error:
            log.warning("%s: cannot look what is read, tries again in %.0f s: %s", stream, self._wait, error)
            # The address may have changed, so that the next try reads the settings again.
            self._ledger, self._next_try = None, time.monotonic() + self._wait
            self._wait = min(2 * self._wait, LONGEST_WAIT_S)
            return None
        self._wait = LOOK_EVERY_S
        status = facts.status
        if status is None:  # a stream that was never planned
            return _Progress(Head(stream))
        is_unfinished = status.open_seq is not None or bool(facts.unpublished)
        return _Progress(status.head, status.holder is not None, is_unfinished)

    def _opened(self) -> Ledger:
        from tidegate.ledger.ledger import current_ledger
        from tidegate.settings import Settings

        # A ledger without tables is not kept: its tables come with the first run.
        if self._ledger is None or not self._ledger.is_stored:
            # A copy of the environment: all triggers of the triggerer share os.environ.
            settings = Settings.from_environment({**os.environ, **ledger_environment()})
            self._ledger = current_ledger(settings.ledger)
        return self._ledger


@dataclass(frozen=True)
class _Selection:
    """The topics of a trigger, by names and by patterns of whole names."""

    topics: Sequence[str]
    patterns: Sequence[str]

    def reads(self, topic: str) -> bool:
        return topic in self.topics or any(re.fullmatch(pattern, topic) for pattern in self.patterns)


_watching: dict[str | None, list[_Selection]] = {}
"""Connection -> the selection of each trigger that runs in this process."""


@contextmanager
def _watched(connection: str | None, selection: _Selection) -> Iterator[None]:
    selections = _watching.setdefault(connection, [])
    selections.append(selection)
    try:
        yield
    finally:
        selections.remove(selection)


async def _ends_of_cluster(connection: str | None) -> AsyncIterator[Offsets]:
    """Yield the last stable offsets of all topics that triggers of this process watch, once a second."""
    from tidegate.errors import TidegateError

    cluster, wait = _Cluster(connection), LOOK_EVERY_S
    try:
        while True:
            try:
                yield await asyncio.to_thread(cluster.ends)
                wait = LOOK_EVERY_S
            except TidegateError as error:
                wait = min(2 * wait, LONGEST_WAIT_S)
                log.warning("Cannot look which records wait, tries again in %.0f s: %s", wait, error)
            await asyncio.sleep(wait)
    finally:
        cluster.close()


class _Cluster:
    """A Kafka cluster with one connection, which is opened again after an error."""

    def __init__(self, connection: str | None) -> None:
        self._connection = connection
        self._log: KafkaLog | None = None
        self._open = ExitStack()

    def ends(self) -> Mapping[tuple[str, int], int]:
        """Return the last stable offsets of the watched topics. Raises BrokerUnavailable, SettingsInvalid."""
        from tidegate.errors import TidegateError

        try:
            kafka = self._opened()
            selections = [*_watching.get(self._connection, ())]
            topics = {topic for selection in selections for topic in selection.topics}
            # Only patterns need the names of all topics, of which a cluster may have thousands.
            patterns = [selection for selection in selections if selection.patterns]
            for topic in kafka.topics() if patterns else ():
                topics |= {topic for selection in patterns if selection.reads(topic)}
            return kafka.stable_ends(topics)
        except TidegateError:
            self.close()
            raise

    def close(self) -> None:
        self._log = None
        self._open.close()

    def _opened(self) -> KafkaLog:
        from tidegate.kafka.log import KafkaLog
        from tidegate.model.connection import Connection
        from tidegate.settings import Settings

        if self._log is None:
            exported = connection_environment([Connection("kafka", self._connection)])
            settings = Settings.from_environment({**os.environ, **exported})
            self._log = self._open.enter_context(KafkaLog(settings.kafka(self._connection)))
        return self._log
