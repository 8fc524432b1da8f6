"""The kernel of a join over a history of batches, and a naive model of it: each record against all others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from tests.kernel.rows_for_tests import key_hash
from tidegate import kernel
from tidegate.kernel.strategies.join import Joined

_VALUE = pa.struct([("l", pa.int64()), ("r", pa.int64()), ("_is_left", pa.bool_())])
_INPUT = pa.struct([("reason", pa.string())])
_NEVER = 2**63 - 1


class JoinRecord(NamedTuple):
    """A record of one side; without a value it is a deletion."""

    side: Literal["left", "right"]
    key: str
    value: Any
    timestamp: int
    place: int = 0
    """Its partition."""


class Emitted(NamedTuple):
    """An emission, in the order of its key."""

    key: str
    left: Any
    right: Any
    timestamp: int
    at: int
    reason: str


def join(
    kind: str = "inner", before: int = 10, after: int = 10, grace: int = 0, **options: Any
) -> kernel.Join:
    """A join of the inputs `l` and `r`; times in ms."""
    return kernel.Join("l", "r", kind, None, before, after, grace, **{"clock": "stream", **options})  # type: ignore[arg-type]


@dataclass
class JoinKernel:
    """The kernel with its state between batches."""

    join: kernel.Join
    on_late: Literal["drop", "quarantine"] = "drop"
    where: kernel.Condition | None = None
    emissions: list[Emitted] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    state: dict[Any, dict[str, Any]] = field(default_factory=dict)
    quarantined: list[str] = field(default_factory=list)
    traces: list[tuple[str, str]] = field(default_factory=list)
    times: dict[int, int] = field(default_factory=dict)
    offset: int = 0
    clock: int = -1
    trace: bool = False

    def __post_init__(self) -> None:
        self.stage = kernel.Stage(
            *(Joined(), self.join, self.join.window, self.where, "none"), on_late=self.on_late, name="joined"
        )
        self.schema = kernel.input_schema(_VALUE, _VALUE, Joined().output_type(_VALUE), _INPUT, later=True)

    def apply(self, records: Iterable[JoinRecord], clock: int | None = None) -> None:
        """Decide one batch."""
        rows = [self._row(record) for record in records]
        batch = kernel.Batch(
            {("in", place): time for place, time in self.times.items()},
            *(clock, self.clock),
            trace=self.trace,
        )
        self.clock = max(self.clock, -1 if clock is None else clock)
        table = pa.RecordBatch.from_pylist([*self.state.values(), *rows], schema=self.schema)
        emitted = []
        for decided in kernel.decide(self.stage, [_by_hash(table)], batch):
            for row in decided.to_pylist():
                emitted += self._take(row)
        emitted.sort(key=lambda row: (row["key"], row["ordinal"]))
        self.emissions += [
            Emitted(
                *(row["key"], row["value"]["l"], row["value"]["r"]),
                *(row["timestamp"], row["at"], row["reason"]),
            )
            for row in emitted
        ]

    def _take(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        if row["kind"] == kernel.STATE:
            entry = (row["key"], row["window_start"], row["window_end"])
            self.state.pop(entry, None)
            if row["live"]:
                self.state[entry] = {name: row.get(name) for name in self.schema.names} | {"updated_seq": 1}
        elif row["kind"] == kernel.COUNTS:
            self.counts.update(json.loads(row["counts"]))
        elif row["kind"] == kernel.QUARANTINED:
            self.quarantined.append(row["input"]["reason"])
        elif row["kind"] == kernel.TRACE:
            self.traces.append((row["reason"], row["trace"]))
        return [row] if row["kind"] == kernel.EMISSION else []

    def _row(self, record: JoinRecord) -> dict[str, Any]:
        self.offset += 1
        before = self.times.get(record.place, -1)
        self.times[record.place] = max(before, record.timestamp)
        is_left = record.side == "left"
        value = {"l": record.value if is_left else None, "r": None if is_left else record.value}
        return {
            "kind": kernel.RECORD,
            "hash": key_hash(record.key),
            "key": record.key,
            "updated_seq": 0,
            "topic": "in",
            "partition": record.place,
            "offset": self.offset,
            "turn": self.offset,
            "part": 0,
            "timestamp": record.timestamp,
            "time": before,
            "passes": True,
            "value": None if record.value is None else {**value, "_is_left": is_left},
            "input": {"reason": ""},
        }

    def by_key(self) -> dict[str, list[Emitted]]:
        """Return the emissions of each key, in order."""
        keys = dict.fromkeys(sorted(emission.key for emission in self.emissions))
        return {key: [emission for emission in self.emissions if emission.key == key] for key in keys}


def _by_hash(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Sort rows as Spark does: by hash; the kernel orders the rest."""
    return rows.sort_by([("hash", "ascending")])


def naive(join: kernel.Join, records: Sequence[JoinRecord]) -> list[Emitted]:
    """Return the emissions of records of one partition, under `clock: stream`, and up to its last time.

    For each record, all earlier ones are looked at: those that are not late, and still wait when it comes.
    """
    emissions: list[tuple[tuple[int, int, int], Emitted]] = []
    time, times = -1, []
    for record in records:
        times.append((time, max(time, record.timestamp)))
        time = times[-1][1]
    over = [record.timestamp + _reach(join, record) + 1 for record in records]
    used = [record.value is not None and over[n] > times[n][1] for n, record in enumerate(records)]
    pairs = [
        (n, m)
        for n in range(len(records))
        for m in range(n)
        if used[n] and used[m] and over[m] > times[n][0] and _match(join, records[n], records[m])
    ]
    for n, m in pairs:
        left, right = (n, m) if records[n].side == "left" else (m, n)
        newest = max(records[n].timestamp, records[m].timestamp)
        emitted = Emitted(
            records[n].key, records[left].value, records[right].value, newest, times[n][1], "matched"
        )
        emissions.append(((n, 1, records[m].timestamp), emitted))
    matched = {n for pair in pairs for n in pair}
    for n, record in enumerate(records):
        is_left = record.side == "left"
        waits = join.kind == "outer" or (join.kind == "left" and is_left)
        if used[n] and waits and n not in matched and over[n] <= time:
            # after its own key's record that reaches the time, before one for which others have reached it
            own = [k for k in range(n + 1, len(records)) if records[k].key == record.key]
            k, turn = next(
                ((k, phase) for k in own for phase in (0, 1) if over[n] <= times[k][phase]), (len(records), 0)
            )
            value = (record.value, None) if is_left else (None, record.value)
            order = (k, 2 * turn, over[n] * 10_000 + record.timestamp * 10 + (not is_left))
            emissions.append((order, Emitted(record.key, *value, record.timestamp, over[n], "unmatched")))
    return [emission for _, emission in sorted(emissions, key=lambda pair: (pair[1].key, pair[0]))]


def _reach(join: kernel.Join, record: JoinRecord) -> int:
    return ((join.after_ms if record.side == "left" else join.before_ms) or 0) + join.grace_ms


def _match(join: kernel.Join, first: JoinRecord, second: JoinRecord) -> bool:
    if first.key != second.key or first.side == second.side:
        return False
    left, right = (first, second) if first.side == "left" else (second, first)
    return -(join.before_ms or 0) <= right.timestamp - left.timestamp <= (join.after_ms or 0)
