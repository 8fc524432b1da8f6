"""An endpoint in memory, which stores idempotency keys: httpx's client in place, for all sinks of a world.

It answers as networks do: now and then it refuses a request, is busy or down, uses a request and says that it
failed, or breaks off in the middle of an answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2 as httpx

from tests.simulator.emissions import Emission, difference
from tests.simulator.world import Violation, World
from tidegate.errors import SinkUnavailable
from tidegate.ledger import Stream
from tidegate.sinks.port import shard_name

SINK_NAME = "http:/hooks"
_SINK = "  - {kind: http, path: hooks, batch_records: 2}\n"
_OUTAGE_SECONDS = 40.0


def with_endpoint(text: str, seed: int) -> str:
    """Return a pipeline's text with an HTTP sink of the last stage, in a part of the worlds."""
    # dice of its own: it changes nothing else in the other worlds
    is_added = random.Random(f"endpoint {seed}").random() < 0.15
    return text.replace("sinks:\n", f"sinks:\n{_SINK}") if is_added else text


class Used(NamedTuple):
    """An emission that the receiver has used."""

    key: str
    payload: str | None
    timestamp: int

    @classmethod
    def from_emission(cls, emission: Emission) -> Used:
        return cls(emission.key, emission.payload, emission.timestamp)


class Reply(NamedTuple):
    """An answer, as much as the endpoint reads of it."""

    status_code: int
    headers: Mapping[str, str]
    is_cut: bool = False

    def iter_raw(self) -> Iterator[bytes]:
        yield b"{"
        if self.is_cut:
            raise httpx.RemoteProtocolError("the answer breaks off")
        yield b"}"


_ACKNOWLEDGED = Reply(204, {})
_CUT = Reply(200, {}, is_cut=True)
"""A proxy can send a status before the receiver has decided."""


@dataclass
class Receiver:
    """An endpoint. `watch` gets the publisher and the batch of each request that it uses."""

    world: World
    watch: Callable[[str, int], None] = lambda *_: None
    used: list[Used] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    down_until: float = 0.0

    def __post_init__(self) -> None:
        self._dice = random.Random(f"receiver {self.world.seed}")

    def answer(self, key: str, body: bytes) -> Reply:
        """Answer one request. Raises Violation if a key comes with other content than before."""
        if self.world.quiet:
            self._use(key, body)
            return _ACKNOWLEDGED
        if self.world.now < self.down_until:
            return Reply(503, {})
        drawn = self._dice.random()
        if drawn < 0.1:
            pause = self._dice.choice(({}, {"retry-after": "1"}, {"retry-after": "50"}))
            return Reply(self._dice.choice((408, 425, 429, 500, 503)), pause)
        if drawn < 0.13:
            self.world.counts["requests refused"] += 1
            return Reply(422, {})
        if drawn < 0.15:
            self.world.counts["endpoint down"] += 1
            self.down_until = self.world.now + _OUTAGE_SECONDS
            return Reply(503, {})
        if drawn < 0.2:
            return _CUT
        self._use(key, body)
        if drawn < 0.35:
            self.world.counts["used requests without an answer"] += 1
            return self._dice.choice((Reply(504, {}), _CUT))
        return _ACKNOWLEDGED

    def _use(self, key: str, body: bytes) -> None:
        stored = self.bodies.get(key)
        if stored is not None:
            self.world.counts["requests repeated"] += 1
            if stored != body:
                raise Violation(f"the idempotency key {key} stands for {stored!r} and for {body!r}")
            return
        pipeline, generation, seq, _ = key.split("/", 3)
        self.watch(shard_name(Stream(pipeline, int(generation)), SINK_NAME), int(seq))
        self.bodies[key] = body
        self.used += [Used(row["key"], row["value"], row["timestamp"]) for row in json.loads(body)]


class SimHttpClient:
    """A client in place of `httpx.Client`."""

    def __init__(self, world: World, receiver: Receiver, **_: Any) -> None:
        self._world, self._receiver = world, receiver

    def __enter__(self) -> SimHttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing that anybody could see."""

    @contextmanager
    def stream(self, method: str, url: str, content: bytes, headers: Mapping[str, str]) -> Iterator[Reply]:
        key = headers["idempotency-key"]
        yield self._world.effect("http.send", lambda: self._receiver.answer(key, content), httpx.ConnectError)


def reach(world: World) -> None:
    """Connect in place of `Endpoint.reach`."""
    world.effect("http.reach", lambda: None, SinkUnavailable)


def check_received(receiver: Receiver, batches: Sequence[Sequence[Emission]]) -> None:
    """Require that the receiver has used each emission once, batch after batch and in order."""
    expected = [Used.from_emission(row) for batch in batches for row in batch]
    if receiver.used != expected:
        raise Violation(f"{SINK_NAME}: {difference(receiver.used, expected)}")
