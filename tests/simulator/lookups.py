"""A pipeline that looks up two tables, in place of Spark: a Delta table, and the state of another pipeline.

`changes` joins each record with the rows of its key, and joins the last record of a key again when one of
the rows is another one. `totals` regroups what `changes` emits, with retraction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tests.simulator.emissions import Decided, Emission, Read, State
from tests.simulator.replays import is_bad, is_refused
from tidegate.errors import LakeUnavailable
from tidegate.ledger import Plan
from tidegate.ledger.planned import planned_pipeline

RATES, RULES = "/rates", "rules/changes"
RULES_TOPIC, RULES_PIPELINE = "rules", "rules"
CHANGES, TOTALS = "changes", "totals"
Rows = Mapping[str, str]
"""Key of records -> the looked-up column of its row."""

PIPELINE = """\
pipeline: simulated
generation: {generation}
source:
  topics: [input]
  format: string
  {limit}
lookup:
  - {{table: /rates, on: [key], columns: [rate], on_change: emit}}
  - {{table: rules/changes, on: [key], columns: [rule], on_change: {on_change}}}
stages:
  - name: changes
    select: {{value: "`value`", rate: "coalesce(rate, 'none')", rule: rule}}
    reduce: latest
    emit: {{on: change}}
  - name: totals
    key: [rate]
    retract: true
    reduce: {{number: "count(*)"}}
    emit: {{on: update}}
sinks:
  - {{kind: kafka, topic: output, stage: changes}}
  - {{kind: sql, table: output, stage: totals}}
"""
RULES_FILE = """\
pipeline: rules
generation: {generation}
source: {{topics: [rules], format: string}}
stages: [{{name: changes, select: {{rule: value}}, reduce: latest, emit: {{on: change}}}}]
sinks: [{{kind: table}}]
"""


@dataclass(frozen=True)
class LookedUp:
    """Table -> the rows that a batch looks up, and the tables whose rows may be others than before."""

    rows: Mapping[str, Rows]
    changed: Collection[str]

    def text(self, table: str, key: str) -> str:
        """Return the column of a key's row."""
        return self.rows[table].get(key, "none")


NOTHING = LookedUp({}, ())


@dataclass
class DeltaTable:
    """A table in memory, which has its versions."""

    id: str
    versions: list[Rows]


@dataclass
class DeltaTables:
    """Path -> the tables that were there, of which the last one is the present one."""

    tables: dict[str, list[DeltaTable]] = field(default_factory=dict)

    def write(self, path: str, rows: Rows, replaces: bool = False) -> None:
        """Write another version, or delete the table and create another one."""
        tables = self.tables.setdefault(path, [])
        if replaces or not tables:
            tables.append(DeltaTable(f"table {len(tables) + 1}", []))
        tables[-1].versions.append(rows)

    def pin(self, path: str) -> dict[str, object]:
        """Return what a plan pins of the present table."""
        table = self.tables[path][-1]
        return {"version": len(table.versions) - 1, "id": table.id}

    def rows(self, path: str, version: int) -> Rows:
        """Return the rows of the table that has this name now."""
        versions = self.tables[path][-1].versions
        if version >= len(versions):
            raise LakeUnavailable(f"{path} has no version {version}")
        return versions[version]

    def pinned_rows(self, path: str, pin: Mapping[str, object]) -> Rows:
        """Return the rows that a plan has pinned, whatever has become of the table since."""
        (table,) = [table for table in self.tables[path] if table.id == pin["id"]]
        version = pin["version"]
        assert isinstance(version, int)
        return table.versions[version]


def reacting(plan: Plan) -> frozenset[str]:
    """Return the tables whose changed rows make emissions."""
    return frozenset(lookup.table for lookup in planned_pipeline(plan).reacting_lookups)


def decide_joined(plan: Plan, records: Iterable[Read], before: State, looked_up: LookedUp) -> Decided:
    """Decide a batch, from its records, the state that it starts from and the tables."""
    work = _Work(plan, before, looked_up)
    unusable, refused = [], []
    for key in sorted(entry.split("/")[1] for entry in before if entry.startswith(f"{CHANGES}/")):
        work.join_again(key)
    for read in records:
        if is_bad(read[3]):
            unusable.append(read)
            continue
        if is_refused(read[3]):
            refused.append(read)
        work.take(read)
    for rows in work.emissions.values():
        rows.sort(key=lambda row: row.key)  # stable: a key's own stay in order
    return Decided(work.state, work.emissions, unusable, refused)


def happened(plan: Plan, decided: Decided) -> Counter[str]:
    """Return how often a batch had what only this pipeline has."""
    again = sum(emission.source.startswith("#") for emission in decided.emissions[CHANGES])
    return Counter({"records joined again": again, "batches by a table alone": bool(again and not plan.span)})


@dataclass
class _Work:
    """The stages of one batch, at work."""

    plan: Plan
    before: State
    looked_up: LookedUp
    state: State = field(default_factory=dict)
    emissions: dict[str, list[Emission]] = field(default_factory=lambda: {CHANGES: [], TOTALS: []})

    def row(self, entry: str) -> tuple[str | None, int, int]:
        return self.state.get(entry) or self.before.get(entry, (None, 0, 0))

    def join_again(self, key: str) -> None:
        """Join the last record of a key again with the tables that have changed."""
        text, count, timestamp = self.row(f"{CHANGES}/{key}")
        if text is None:
            return
        value, *old = text.split("/")
        tables = (RATES, RULES)
        changed = [table in self.looked_up.changed for table in tables]
        new = [
            self.looked_up.text(table, key) if is_changed else was
            for table, is_changed, was in zip(tables, changed, old, strict=True)
        ]
        differing = [table for table, was, now in zip(tables, old, new, strict=True) if was != now]
        if differing:
            cause = Emission(key, None, timestamp, f"#{differing[0]}/0/{self.plan.seq}")
            self._change(cause, "/".join((value, *new)), count)

    def take(self, read: Read) -> None:
        """Join a record; a value that is refused counts, and is not remembered."""
        topic, partition, offset, record = read
        key, value = record.key.decode(), (record.value or b"").decode()
        text, count, timestamp = self.row(f"{CHANGES}/{key}")
        self.state[f"{CHANGES}/{key}"] = (text, count + 1, timestamp)
        if is_refused(record):
            return
        cause = Emission(key, None, record.timestamp_ms, f"{topic}/{partition}/{offset}")
        joined = (self.looked_up.text(table, key) for table in (RATES, RULES))
        self._change(cause, "/".join((value, *joined)), count + 1)

    def _change(self, cause: Emission, text: str, count: int) -> None:
        entry = f"{CHANGES}/{cause.key}"
        last = self.row(entry)[0]
        self.state[entry] = (text, count, cause.timestamp)
        if text == last:
            return
        self._emit(CHANGES, cause._replace(payload=f"{text}, record {count}"))
        groups = [(group.split("/")[1], sign) for group, sign in ((last, -1), (text, 1)) if group is not None]
        if len(groups) == 2 and groups[0][0] == groups[1][0]:
            groups = [(groups[0][0], 0)]
        for group, sign in groups:
            number = self.row(f"{TOTALS}/{group}")[2] + sign
            self.state[f"{TOTALS}/{group}"] = (None, 0, number)
            self._emit(TOTALS, cause._replace(key=group, payload=str(number) if number else None))

    def _emit(self, stage: str, emission: Emission) -> None:
        if emission.payload is not None:
            clocks = f"at {self.plan.clock_ms}, after {sorted(self.plan.clocks.items())}"
            emission = emission._replace(payload=f"{emission.payload}, {clocks}")
        self.emissions[stage].append(emission)
