"""Stock events in bulk, the same for the same seed: `{"storeId": "store-17", "id": 123, "quantity": 5}`."""

from __future__ import annotations

import multiprocessing
import os
import random
import string
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial

from confluent_kafka import KafkaError, Producer

STORES = 100
SEED = 20_260_101
_BEGIN_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
_STEP_MS = 5
_CHUNK = 100_000
_LATE_ONE_IN = 10
_STRIDE = 104_729  # a prime
_NOTE, _NOTE_CHARS = ', "note": "{}"', 1 << 20
_WAIT_SECONDS = 0.1
_POLL_EVERY = 10_000
_FLUSH_SECONDS = 60.0
_PRODUCER = {
    "enable.idempotence": True,  # once each, and in order, also where the client tries again
    "linger.ms": 50,
    "batch.size": 262_144,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 128 * 1024,
    "compression.type": "lz4",
    "delivery.report.only.error": True,
    "log_level": 0,
}


@dataclass(frozen=True)
class Load:
    """`events` records over `keys` products; a product's quantity is uniform in 0 … `quantities` - 1.

    A product is sold out in one event of `quantities`, so that sets how often availability changes.
    `first` is the number of events that were sent before these. `in_turn`: one product after the other
    instead of at random. `busy`: the share of the products, one at least, that every second event is about.
    `value_bytes`: each value is filled up to so many bytes by a note that hardly compresses; 0: no note.

    Events are 5 ms apart, or spread evenly over `span_ms`, which is then the same for more or fewer events.
    With `late_ms`, every tenth is late by up to that much.
    """

    events: int = 3_000_000
    keys: int = 100_000
    partitions: int = 2
    quantities: int = 20
    first: int = 0
    seed: int = SEED
    in_turn: bool = False
    busy: float | None = None
    value_bytes: int = 0
    span_ms: int | None = None
    late_ms: int = 0

    def timestamp_ms(self, event: int) -> int:
        """Return the timestamp of event number `event`, which is long ago."""
        if self.span_ms is None:
            timestamp = timestamp_ms(event)
        else:
            timestamp = _BEGIN_MS + event * self.span_ms // self.events
        late = self.late_ms and event % _LATE_ONE_IN == 0
        return timestamp - event * _STRIDE % self.late_ms if late else timestamp


def draw(load: Load) -> Iterator[tuple[int, list[int], list[int]]]:
    """Chunks of (number of the first event, product numbers, quantities)."""
    rng = random.Random(load.seed + load.first)
    products, quantities = range(load.keys), range(load.quantities)
    for begin in range(0, load.events, _CHUNK):
        size = min(_CHUNK, load.events - begin)
        drawn = rng.choices(products, k=size)
        if load.in_turn:
            drawn = [(load.first + event) % load.keys for event in range(begin, begin + size)]
        if load.busy is not None:
            drawn[::2] = [product % max(int(load.keys * load.busy), 1) for product in drawn[::2]]
        yield load.first + begin, drawn, rng.choices(quantities, k=size)


def timestamp_ms(event: int) -> int:
    """Return the default timestamp of event number `event`: long ago, and after the event before it."""
    return _BEGIN_MS + event * _STEP_MS


def key(product: int) -> str:
    """The canonical key of a product, as tidegate writes it."""
    return f'{{"storeId":"store-{product % STORES}","id":{product // STORES + 1}}}'


def value(product: int, quantity: int, note: str = "") -> bytes:
    """A record's value."""
    store, number = f"store-{product % STORES}", product // STORES + 1
    return f'{{"storeId": "{store}", "id": {number}, "quantity": {quantity}{note}}}'.encode()


def wide_value(product: int, quantity: int, event: int, value_bytes: int) -> bytes:
    """A record's value of that many bytes, with a note that no other event has."""
    missing = value_bytes - len(value(product, quantity, _NOTE.format("")))
    begin = event * _STRIDE % _NOTE_CHARS
    return value(product, quantity, _NOTE.format(_notes()[begin : begin + missing]))


@cache
def _notes() -> str:
    """Text that all notes are pieces of. Neighbours are taken far apart, or they would compress."""
    alphabet = string.ascii_letters + string.digits
    return "".join(random.Random(SEED).choices(alphabet, k=2 * _NOTE_CHARS))


def send(servers: str, topic: str, load: Load) -> float:
    """Send a load, one process per partition, each product's events in order. Returns the seconds."""
    began = time.perf_counter()
    workers = min(load.partitions, os.cpu_count() or 1)
    # spawned: a fork would copy the locks of the threads of Kafka's clients
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            sent = sum(pool.map(partial(_send_part, servers, topic, load), range(load.partitions)))
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()  # else they would first send what is left
            raise
    if sent != load.events:
        raise RuntimeError(f"{sent} of {load.events} events were sent")
    return time.perf_counter() - began


def _send_part(servers: str, topic: str, load: Load, partition: int) -> int:
    """Send the events of the products that live in one partition; returns how many."""
    failed: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": servers, **_PRODUCER, "on_delivery": lambda error, _: failed.append(error)}
    )
    count = 0
    for record in _records(load, partition):
        while not _queued(producer, topic, partition, record):
            producer.poll(_WAIT_SECONDS)
        count += 1
        if count % _POLL_EVERY == 0:
            producer.poll(0)
    left = producer.flush(_FLUSH_SECONDS)
    if left or failed:
        raise RuntimeError(f"{left + len(failed)} events were not sent: {failed[:1]}")
    return count


def _records(load: Load, partition: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, value and timestamp (epoch ms) of the events of one partition, in order."""
    for begin, products, quantities in draw(load):
        for event, (product, quantity) in enumerate(zip(products, quantities, strict=True), begin):
            if product % load.partitions == partition:
                if load.value_bytes:
                    text = wide_value(product, quantity, event, load.value_bytes)
                else:
                    text = value(product, quantity)
                yield key(product).encode(), text, load.timestamp_ms(event)


def _queued(producer: Producer, topic: str, partition: int, record: tuple[bytes, bytes, int]) -> bool:
    """Whether the client took an event; not while as many wait as it may hold."""
    name, text, timestamp = record
    try:
        producer.produce(topic, text, name, partition=partition, timestamp=timestamp)
    except BufferError:
        return False
    return True


_NOTHING, _SOLD_OUT, _AVAILABLE = range(3)


class Availability:
    """The availability of `keys` products: unknown in the beginning, or `initial` for all of them."""

    def __init__(self, keys: int, initial: bool | None = None) -> None:
        first = _NOTHING if initial is None else _AVAILABLE if initial else _SOLD_OUT
        self._states = bytearray([first]) * keys

    def changes(self, load: Load) -> int:
        """Count the next events that change the availability of their product."""
        states, count = self._states, 0
        for _, products, quantities in draw(load):
            for product, quantity in zip(products, quantities, strict=True):
                available = _AVAILABLE if quantity else _SOLD_OUT
                if states[product] != available:
                    states[product] = available
                    count += 1
        return count
