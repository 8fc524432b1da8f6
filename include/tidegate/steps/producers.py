"""A large outbox goes to Kafka through several producers at once, each in a process of its own.

Each has all emissions of its keys, so a key's records stay in order; and a transactional id and a progress
record of its own, so each part is exactly once by itself: whichever of them dies, the next try goes on where
it was. How many there are follows from the number of emissions alone: every try of a batch shares it out in
the same way, and the ledger, which has that number, tells later which of them had a part in it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tidegate.broker.publisher import KafkaPublisher, Message
from tidegate.errors import OutcomeUnknown
from tidegate.failpoints import failpoint
from tidegate.ledger import LeasedLedger, LedgerReader, Stream
from tidegate.spec import KafkaSink
from tidegate.steps.messages import topic_messages
from tidegate.steps.outbox import Outbox

PER_PRODUCER = 100_000
"""Emissions that are worth one more producer. Fixed: another number would share out anew what was begun, and
read the ledger wrongly."""
MOST_PRODUCERS = 4
_SILENT_SECONDS = 120.0
"""A process that says nothing for so long, not even that it lives, is given up."""


def producers_for(emitted: int) -> int:
    """How many producers publish so many emissions."""
    return min(max(ceil(emitted / PER_PRODUCER), 1), MOST_PRODUCERS)


def part_name(sink: str, part: int) -> str:
    """What a part is called in the ledger and in Kafka. The first has the name of the sink."""
    return f"{sink}#{part}" if part else sink


def parts_begun(ledger: LedgerReader, stream: Stream, sink: str) -> list[int]:
    """The parts that ever had something to send: of each there must be a progress record."""
    names = [part_name(sink, part) for part in range(MOST_PRODUCERS)]
    return [part for part, name in enumerate(names) if ledger.sink_identity(stream, name) is not None]


def note_publication(held: LeasedLedger, seq: int, sink: str, records: int) -> None:
    """Note that a sink has the whole of a batch, and thereby the parts that so many records have."""
    parts = [part_name(sink, part) for part in range(1, producers_for(records))]
    held.add_publication(seq, sink, records, parts)


def last_of_part(ledger: LedgerReader, stream: Stream, sink: str, part: int, up_to: int | None = None) -> int:
    """The newest published batch that was large enough for a part; 0 if none, or if it is after `up_to`."""
    newest = ledger.last_published(stream, part_name(sink, part))
    return newest if up_to is None or newest <= up_to else 0


@dataclass(frozen=True)
class Share:
    """What one of `of` producers has of an outbox. `last_published` is the part's, as the ledger knows it."""

    publisher: KafkaPublisher
    sink: KafkaSink
    outbox: Outbox
    last_published: int
    part: int = 0
    of: int = 1

    def publish(self) -> int:
        """Send it, or what is left of it; how many records that was. Raises as `KafkaPublisher.publish`."""
        outbox = self.outbox
        return self.publisher.publish(outbox.plan.seq, outbox.attempt, self.messages, self.last_published)

    def messages(self, skip: int) -> Iterator[Message]:
        """Its messages from the `skip`-th on."""
        return topic_messages(self.sink, self.outbox, skip, self.part, self.of)


def publish_shares(shares: Sequence[Share]) -> None:
    """Publish all shares of an outbox, side by side. When one fails, the others still go to their end.

    Raises as `Share.publish`, the first error that there is; OutcomeUnknown when a process dies.
    """
    if len(shares) == 1:
        shares[0].publish()
        return
    with _process_errors(), _started(shares) as producers, failpoint("publish.await_producers"):
        answers = [producer.answer() for producer in producers]
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


@dataclass(frozen=True)
class _Producer:
    """A process that runs `producer.main`, and the connection to it."""

    process: subprocess.Popen[bytes]
    connection: Connection[Any, Any]

    @classmethod
    def start(cls) -> _Producer:
        ours, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "tidegate.steps.producer", str(theirs.fileno())]
            return cls(subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]), ours)

    def answer(self) -> int | Exception:
        """How many records it sent, or what went wrong."""
        try:
            while self.connection.poll(_SILENT_SECONDS):
                said: int | Exception | None = self.connection.recv()
                if said is not None:
                    return said
        except (EOFError, ConnectionResetError):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_SILENT_SECONDS)
            return _unknown(f"ended without a word (exit code {self.process.returncode})")
        return _unknown(f"has given no sign of life for {_SILENT_SECONDS:.0f} s")

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


@contextmanager
def _started(shares: Sequence[Share]) -> Iterator[list[_Producer]]:
    """A producer for each share, at work. None of them is left at the end, however it comes."""
    producers: list[_Producer] = []
    try:
        with failpoint("publish.start_producers"):
            for _ in shares:
                producers.append(_Producer.start())
            for producer, share in zip(producers, shares, strict=True):
                producer.connection.send(share)
        yield producers
    finally:
        for producer in producers:
            producer.end()


@contextmanager
def _process_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unknown(f"could not be started, or not be heard ({type(error).__name__}: {error})") from error


def _unknown(what: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"A process that publishes a part of the outbox {what}",
        "Run again: it reads the progress record of each part and goes on from what is true.",
    )
