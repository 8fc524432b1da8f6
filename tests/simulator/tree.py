"""A tree of stages over two sources, in place of Spark: what it decides by records, and by clocks.

`changes` and `minutes` read the first topic, `pairs` joins it with the second one, and `totals` regroups what
`changes` emits, with retraction. Values of `changes` expire, and minutes end, when the clock of their
partition says so: then a batch without records emits, too. A record of a minute that is over is late, and
goes out by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.simulator.emissions import INPUT, MORE, Decided, Emission, Read, State
from tests.simulator.replays import is_bad, is_refused
from tidegate.ledger import Plan

TTL_MS, MINUTE_MS = 40_000, 30_000
CHANGES, TOTALS, MINUTES, PAIRS = "changes", "totals", "minutes", "pairs"
LATE = f"{MINUTES}.late"
OUTLETS = (CHANGES, TOTALS, MINUTES, LATE, PAIRS)
_SOURCES = "sources:\n"

PIPELINE = """\
pipeline: simulated
generation: 1
sources:
  left: {{topics: [input], format: string{limit}}}
  right: {{topics: [more], format: string}}
stages:
  - name: changes
    from: left
    select: {{value: "`value`"}}
    reduce: latest
    emit: {{on: change, equal: {{sql: "old.`value` <=> new.`value`"}}}}
    ttl: {{after: 40s, emit: deletion}}
  - name: totals
    from: changes
    key: [value]
    retract: true
    reduce: {{number: "count(*)"}}
    emit: {{on: update}}
  - name: minutes
    from: left
    window: {{tumbling: 30s}}
    reduce: {{number: "count(*)"}}
    emit: {{on: window_close}}
    on_late: emit
  - {{name: lefts, from: left, select: {{value: "`value`"}}, emit: {{on: update}}}}
  - {{name: rights, from: right, select: {{value: "`value`"}}, emit: {{on: update}}}}
  - name: pairs
    join: {{left: lefts, right: rights, within: 10m}}
    select: {{left: left.value, right: right.value}}
sinks:
  - {{kind: kafka, topic: output, stage: pairs}}
  - {{kind: kafka, topic: others, stage: minutes.late}}
  - {{kind: sql, table: output, stage: totals}}
  - {{kind: table, path: others, stage: changes}}
quality: {{suite: simulated, on_failure: stop}}
"""

Clocks = Mapping[tuple[str, int], int]


def is_tree(plan: Plan) -> bool:
    """Whether a batch's pipeline is the one above."""
    return _SOURCES in plan.spec_text


def overdue(state: State, clocks: Clocks) -> list[str]:
    """Return the entries whose time is over by these clocks, and which have not gone out."""
    waiting = ((entry, _end_of(entry, row)) for entry, row in sorted(state.items()))
    return [entry for entry, end in waiting if end is not None and end <= clocks.get(_at(entry), -1)]


def happened(plan: Plan, decided: Decided) -> Counter[str]:
    """Return how often a batch had what only this pipeline has."""
    emissions = decided.emissions
    expired = sum(emission.payload is None for emission in emissions[CHANGES])
    by_clock = not plan.span and plan.replay is None and any(emissions.values())
    return Counter(
        {
            "values expired": expired,
            "rows regrouped": len(emissions[TOTALS]),
            "late records emitted": len(emissions[LATE]),
            "records joined": len(emissions[PAIRS]),
            "batches by the clock alone": by_clock,
        }
    )


def _at(entry: str) -> tuple[str, int]:
    """Return the partition of the first topic that an entry's key is of: the last digit of keys says it."""
    return INPUT, int(entry.split("/")[1][-1])


def _end_of(entry: str, row: tuple[str | None, int, int]) -> int | None:
    """Return when an entry's time is over; None if it does not wait for a clock."""
    stage, *rest = entry.split("/")
    value, _, number = row
    if stage == CHANGES and value is not None:
        return number + TTL_MS
    return int(rest[1]) + MINUTE_MS if stage == MINUTES and number else None


def decide_tree(plan: Plan, records: Iterable[Read], before: State) -> Decided:
    """Decide a batch, from its records and the state that it starts from."""
    work = _Work(plan, before)
    unusable, refused = [], []
    for read in records:
        if is_bad(read[3]):
            unusable.append(read)
            continue
        work.count(read)
        if is_refused(read[3]):
            refused.append(read)
        else:
            work.take(read)
    for entry in overdue(before | work.state, plan.clocks_after):
        work.end(entry)
    for rows in work.emissions.values():
        rows.sort(key=lambda row: row.key)  # stable: a key's own stay in order
    return Decided(work.state, work.emissions, unusable, refused, _totals(before | work.state))


def _totals(state: State) -> dict[str, dict[str, int]]:
    """The rows that wait for a clock."""
    waiting = [entry.split("/")[0] for entry, row in state.items() if _end_of(entry, row) is not None]
    return {
        CHANGES: {"state-rows": waiting.count(CHANGES)},
        MINUTES: {"suppression-buffer-records": waiting.count(MINUTES)},
    }


@dataclass
class _Work:
    """The stages of one batch, at work."""

    plan: Plan
    before: State
    state: State = field(default_factory=dict)
    emissions: dict[str, list[Emission]] = field(default_factory=lambda: {name: [] for name in OUTLETS})

    def row(self, entry: str) -> tuple[str | None, int, int]:
        return self.state.get(entry) or self.before.get(entry, (None, 0, 0))

    def count(self, read: Read) -> None:
        entry = f"records/{_key(read)}/{read[0]}"
        self.state[entry] = (None, self.row(entry)[1] + 1, 0)

    def take(self, read: Read) -> None:
        """Let each stage that reads the record's topic have it."""
        topic, partition, offset, record = read
        key, value = _key(read), (record.value or b"").decode()
        cause = Emission(key, value, record.timestamp_ms, f"{topic}/{partition}/{offset}")
        if topic == INPUT:
            self._change(cause)
            self._add_to_minute(cause)
        self._pair(topic, cause)

    def _change(self, cause: Emission) -> None:
        entry = f"{CHANGES}/{cause.key}"
        last = self.row(entry)[0]
        if cause.payload != last:
            self.state[entry] = (cause.payload, 0, cause.timestamp)
            self._emit(CHANGES, cause)
            self._regroup(last, cause)

    def _regroup(self, last: str | None, cause: Emission) -> None:
        """Take back what a key was, and add what it is."""
        for value, sign in ((last, -1), (cause.payload, 1)):
            if value is not None:
                entry = f"{TOTALS}/{value}"
                number = self.row(entry)[2] + sign
                self.state[entry] = (None, 0, number)
                self._emit(TOTALS, cause._replace(key=value, payload=str(number) if number else None))

    def _add_to_minute(self, cause: Emission) -> None:
        start = cause.timestamp - cause.timestamp % MINUTE_MS
        if start + MINUTE_MS <= self.plan.clocks.get(_at(f"/{cause.key}"), -1):
            self._emit(LATE, cause)
            return
        entry = f"{MINUTES}/{cause.key}/{start}"
        self.state[entry] = (None, 0, self.row(entry)[2] + 1)

    def _pair(self, topic: str, cause: Emission) -> None:
        self.state[f"{PAIRS}/{cause.key}/{topic}"] = (cause.payload, 0, cause.timestamp)
        sides = [self.row(f"{PAIRS}/{cause.key}/{side}")[0] for side in (INPUT, MORE)]
        if None not in sides:
            self._emit(PAIRS, cause._replace(payload=" and ".join(map(str, sides))))

    def end(self, entry: str) -> None:
        """Emit what has waited for the clock of its partition."""
        stage, key = entry.split("/")[:2]
        value, _, number = self.row(entry)
        at_ms = _end_of(entry, (value, 0, number))
        assert at_ms is not None, "it has waited"
        self.state[entry] = (None, 0, 0)
        cause = Emission(key, None, at_ms, "clock")
        if stage == CHANGES:
            self._emit(CHANGES, cause)
            self._regroup(value, cause)
        else:
            self._emit(MINUTES, cause._replace(payload=str(number)))

    def _emit(self, stage: str, emission: Emission) -> None:
        if emission.payload is not None:
            clocks = f"at {self.plan.clock_ms}, after {sorted(self.plan.clocks.items())}"
            emission = emission._replace(payload=f"{emission.payload}, {clocks}")
        self.emissions[stage].append(emission)


def _key(read: Read) -> str:
    return read[3].key.decode()
