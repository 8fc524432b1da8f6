"""New events for many topics, minute by minute, and what must come of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import Producer

from benchmarks.events import SEED, key, value

PARTITIONS = 2
_KEYS, _QUANTITIES = 200, 4
_PORTION_S = 5
PORTIONS = 10
"""In a minute. After the last one, nothing comes for ten seconds: what an interval has is there before it
ends, however long a send takes, and a batch's records can be told from the time alone."""

_FLUSH_S = 9.0


@dataclass(frozen=True)
class Event:
    """An event that was sent: its product, its quantity, and the time (epoch ms)."""

    at_ms: int
    product: int
    quantity: int


@dataclass
class Sent:
    """A topic's events, in order."""

    topic: str
    events: list[Event] = field(default_factory=list)

    def count(self, after_ms: int, before_ms: int) -> int:
        """Count the events from `after_ms` (inclusive) to `before_ms` (exclusive)."""
        return sum(after_ms <= event.at_ms < before_ms for event in self.events)

    def changes(self, before_ms: int) -> dict[str, list[tuple[int, bool]]]:
        """Key -> when its product became available or sold out, as a plain loop finds it."""
        changes: dict[str, list[tuple[int, bool]]] = {}
        for event in self.events:
            if event.at_ms < before_ms:
                of_key = changes.setdefault(key(event.product), [])
                if not of_key or of_key[-1][1] != (event.quantity > 0):
                    of_key.append((event.at_ms, event.quantity > 0))
        return changes


class Feed:
    """Sends events to topics in a thread, for as long as its block runs; `add` lets a topic have some, too.

    Each gets `per_minute` events in portions, the first at the begin of a minute. `check` raises what went
    wrong.
    """

    def __init__(self, servers: str, per_minute: int, now: Callable[[], float] = time.time) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self._per_portion = max(per_minute // PORTIONS, 1)
        self._now = now
        self._random = random.Random(SEED)
        self._sent: dict[str, Sent] = {}
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def add(self, topics: Iterable[str]) -> None:
        """Send events to these topics, too, from the next portion on."""
        self._sent |= {topic: Sent(topic) for topic in topics if topic not in self._sent}

    def sent(self, topic: str) -> Sent:
        """Return the events that a topic got so far."""
        return self._sent[topic]

    def check(self) -> None:
        """Raise what ended the feed, if it has ended."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(seconds_to_portion(self._now())):
                self._send_portion(int(self._now() * 1000))
        except BaseException as error:
            self._error = error

    def _send_portion(self, at_ms: int) -> None:
        for sent in list(self._sent.values()):
            for _ in range(self._per_portion):
                event = Event(at_ms, self._random.randrange(_KEYS), self._random.randrange(_QUANTITIES))
                self._producer.produce(
                    sent.topic,
                    value(event.product, event.quantity),
                    key(event.product),
                    partition=event.product % PARTITIONS,
                    timestamp=at_ms,
                )
                sent.events.append(event)
        if self._producer.flush(_FLUSH_S):
            raise RuntimeError(f"Events could not be sent within {_FLUSH_S:.0f} s")


def seconds_to_portion(now: float) -> float:
    """Until the next portion is due. `now`: epoch seconds."""
    in_minute = now % 60
    portion = int(in_minute // _PORTION_S) + 1
    return (portion * _PORTION_S if portion < PORTIONS else 60.0) - in_minute
