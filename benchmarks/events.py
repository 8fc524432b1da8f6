"""Stock events in bulk, the same for the same seed: `{"storeId": "store-17", "id": 123, "quantity": 5}`."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaError, Producer

STORES = 100
SEED = 20_260_101
_BEGIN_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
_STEP_MS = 5
_CHUNK = 100_000
_WAIT_SECONDS = 0.1
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
    instead of at random.
    """

    events: int = 3_000_000
    keys: int = 100_000
    partitions: int = 2
    quantities: int = 20
    first: int = 0
    seed: int = SEED
    in_turn: bool = False


def draw(load: Load) -> Iterator[tuple[int, list[int], list[int]]]:
    """Chunks of (number of the first event, product numbers, quantities)."""
    rng = random.Random(load.seed + load.first)
    products, quantities = range(load.keys), range(load.quantities)
    for begin in range(0, load.events, _CHUNK):
        size = min(_CHUNK, load.events - begin)
        drawn = rng.choices(products, k=size)
        if load.in_turn:
            drawn = [(load.first + event) % load.keys for event in range(begin, begin + size)]
        yield load.first + begin, drawn, rng.choices(quantities, k=size)


def timestamp_ms(event: int) -> int:
    """When event number `event` happened: long ago, and after the one before it."""
    return _BEGIN_MS + event * _STEP_MS


def key(product: int) -> str:
    """The canonical key of a product, as tidegate writes it."""
    return f'{{"storeId":"store-{product % STORES}","id":{product // STORES + 1}}}'


def value(product: int, quantity: int) -> bytes:
    """A record's value."""
    store, number = f"store-{product % STORES}", product // STORES + 1
    return f'{{"storeId": "{store}", "id": {number}, "quantity": {quantity}}}'.encode()


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
    for begin, products, quantities in draw(load):
        for event, (product, quantity) in enumerate(zip(products, quantities, strict=True), begin):
            if product % load.partitions == partition:
                while not _queued(producer, topic, product, quantity, event, partition):
                    producer.poll(_WAIT_SECONDS)
                count += 1
        producer.poll(0)
    left = producer.flush(_FLUSH_SECONDS)
    if left or failed:
        raise RuntimeError(f"{left + len(failed)} events were not sent: {failed[:1]}")
    return count


def _queued(producer: Producer, topic: str, product: int, quantity: int, event: int, partition: int) -> bool:
    """Whether the client took an event; not while as many wait as it may hold."""
    try:
        producer.produce(
            topic,
            value(product, quantity),
            key(product).encode(),
            partition=partition,
            timestamp=timestamp_ms(event),
        )
    except BufferError:
        return False
    return True
