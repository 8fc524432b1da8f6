"""Random stages, and random histories for them: small, but with everything that real ones have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.kernel.model import Batch, Model, Record
from tests.kernel.model.equivalences import below, not_above, same_parity
from tests.kernel.model.expected import Expected, all_of, at_least, greater, none_of, not_null
from tests.kernel.model.grammar import Condition, milliseconds
from tidegate.kernel import STRATEGIES

Draw = st.DrawFn

SELECTS = [
    {"x": "x", "s": "s"},
    {"x": "x", "s": "s"},
    {"x": "x", "s": "s", "m": "m"},
    {"x": "x", "i": "i"},
    {"d": "d", "s": "s"},
    {"m": "m", "i": "i"},
]
"""What `latest` and `collect` select: doubles and text, maps, whole numbers, decimals."""
ARE_NUMBERS = ("x", "i", "d")
NUMBERS = {"n": "count(*)", "c": "count(x)", "total": "sum(x)", "least": "min(x)", "most": "max(x)"}
AGGREGATES = {
    **NUMBERS,
    "mean": "avg(x)",
    "head": "first(x)",
    "tail": "last(s)",
    "all": "collect_list(s)",
    "kinds": "collect_set(x)",
    "different": "count(distinct x)",
}
WINDOWS: list[dict[str, str] | None] = [
    None,
    {"tumbling": "10ms", "grace": "5ms"},
    {"tumbling": "25ms", "grace": "0ms"},
    {"tumbling": "10ms", "offset": "3ms", "grace": "5ms"},
    {"hopping": "10ms", "every": "5ms", "grace": "5ms"},
    {"hopping": "20ms", "every": "7ms", "offset": "2ms", "grace": "3ms"},
    {"hopping": "20ms", "every": "7ms", "grace": "0ms"},
    {"cumulating": "20ms", "every": "5ms", "grace": "3ms"},
    {"cumulating": "30ms", "every": "15ms", "offset": "4ms"},
    {"session": "5ms", "grace": "0ms"},
    {"session": "8ms", "grace": "6ms"},
]
EMITS = [*STRATEGIES, "any"]
"""All that the registry has: a strategy without a rule in the model fails."""
HEARTBEATS = ["1ms", "10ms", "20ms"]
AT_MOST_EVERY = ["4ms", "10ms", "25ms"]
EARLY = [{"every": "3ms"}, {"every": "10ms"}, {"on": "change"}]
TRIGGERS = [
    *(("change", "interval"), ("time_limit", "change"), ("interval", "time_limit")),
    ("change", "time_limit", "interval"),
]
"""Strategies that `any` combines."""
PARITY = "tests.kernel.model.equivalences:same_parity"


@dataclass(frozen=True)
class Case:
    """A stage, and what the model must know beside it. `expectations`: those of its rows, by their names."""

    stage: dict[str, Any]
    deduplicate: str = "offset"
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    expectations: tuple[Expected, ...] = ()

    def model(self) -> Model:
        expected = all_of(self.expectations) if self.expectations else None
        return Model(self.stage, self.deduplicate, self.conditions, expected)


# -- stages ---------------------------------------------------------------------------------------------


@st.composite
def cases(
    draw: Draw,
    emits: Sequence[str] = EMITS,
    reduces: Sequence[str] = ("latest", "aggregates", "collect"),
    windows: Sequence[dict[str, str] | None] = WINDOWS,
    clocks: Sequence[str] = ("stream", "run"),
    deduplicates: Sequence[str] = ("offset", "root"),
    filtered: bool = True,
    expecting: bool = False,
) -> Case:
    """A stage of the given kinds; `filtered`: it may have a `where`; `expecting`: it has expectations."""
    # a key is silent, and not a window: `quiet` has none
    on = draw(st.sampled_from([on for on in emits if on != "quiet" or None in windows]))
    kinds = draw(st.sampled_from(TRIGGERS)) if on == "any" else (on,)
    compares = "change" in kinds
    reduce = draw(st.sampled_from([reduce for reduce in reduces if reduce != "collect" or not compares]))
    stage: dict[str, Any] = {"name": "out", "reduce": reduce}
    if reduce == "aggregates":
        stage["reduce"] = draw(_aggregates())
    else:
        stage["select"] = draw(st.sampled_from(SELECTS))
    allowed = [window for window in windows if window is not None or on != "window_close"]
    if on == "quiet":
        allowed = [None]
    if compares:  # each record of a session changes the session itself
        allowed = [window for window in allowed if window is None or "session" not in window]
    if reduce != "aggregates":
        allowed = [window for window in allowed if window is None or "cumulating" not in window]
    if (window := draw(st.sampled_from(allowed))) is not None:
        stage["window"] = window
    conditions: dict[str, Condition] = {}
    emits_of = [{"on": kind, **draw(_options(stage, kind, conditions))} for kind in kinds]
    stage["emit"] = {"any": [*map(_trigger, emits_of)]} if on == "any" else emits_of[0]
    stage["emit"]["clock"] = draw(st.sampled_from(clocks))
    if stage["emit"]["clock"] == "run" and "heartbeat" in stage["emit"]:
        stage["emit"].pop("state", None)  # a hash cannot be sent again
    if filtered and reduce != "collect" and draw(st.sampled_from([True, False, False])):
        column, limit = draw(st.sampled_from(_numbers(stage))), draw(st.integers(1, 6))
        stage["where"] = f"{column} < {limit}"
        conditions[stage["where"]] = below(column, limit)
    if draw(st.sampled_from([True, False, False])):
        stage |= draw(_ttl(stage))
    expectations = draw(_expectations(stage)) if expecting else ()
    return Case(stage, draw(st.sampled_from(deduplicates)), conditions, expectations)


def _trigger(emit: dict[str, Any]) -> dict[str, Any]:
    """Return a strategy without the options that a trigger of `any` cannot have."""
    alone = ("state", "heartbeat", "at_most_every", "buffer")
    return {name: option for name, option in emit.items() if name not in alone}


@st.composite
def _ttl(draw: Draw, stage: Mapping[str, Any]) -> dict[str, Any]:
    """A time to live that is at least as long as values wait, where a stage may have one."""
    emit = stage["emit"]
    if "any" in emit:
        return {}
    bounded = emit.get("buffer", {}).get("when_full", "spill" if "buffer" not in emit else "emit_early")
    endless = emit["on"] == "threshold" and "after" not in emit
    if "window" in stage or bounded != "spill" or endless:
        return {}
    waits = max(milliseconds(emit.get(name, "0ms")) for name in ("after", "every", "at_most_every"))
    after = draw(st.sampled_from([text for text in ("4ms", "12ms", "45ms") if milliseconds(text) >= waits]))
    facts = stage["reduce"] == "collect" or (emit["on"] == "threshold" and stage["reduce"] != "latest")
    kinds = [after, {"after": after}, *([] if facts else [{"after": after, "emit": "deletion"}] * 2)]
    return {"ttl": draw(st.sampled_from(kinds))}


@st.composite
def _expectations(draw: Draw, stage: Mapping[str, Any]) -> tuple[Expected, ...]:
    """One or two that some values break; events have none to look at but whether they are there."""
    if stage["reduce"] == "collect":
        return (not_null("events"),)
    number = draw(st.sampled_from(_numbers(stage)))
    possible = [not_null(number), at_least(number, draw(st.sampled_from([0, 2, 4])))]
    if stage["reduce"] == "latest" and "s" in stage["select"]:
        possible += [none_of("s", ("q", "日本")), not_null("s")]
    if stage["reduce"] == "latest" and {"x", "i"} <= {*stage["select"]}:
        possible.append(greater("i", "x"))
    return tuple(draw(st.lists(st.sampled_from(possible), min_size=1, max_size=2, unique_by=id)))


@st.composite
def _aggregates(draw: Draw) -> dict[str, str]:
    """At least one that is a number, for conditions."""
    number = draw(st.sampled_from(sorted(NUMBERS)))
    chosen = draw(st.sets(st.sampled_from(sorted(AGGREGATES)), max_size=3))
    return {name: AGGREGATES[name] for name in AGGREGATES if name == number or name in chosen}


def _numbers(stage: Mapping[str, Any]) -> list[str]:
    """The emitted columns that are numbers."""
    if not isinstance(stage["reduce"], dict):
        return [name for name in stage["select"] if name in ARE_NUMBERS]
    return [name for name in stage["reduce"] if name in NUMBERS]


@st.composite
def _options(draw: Draw, stage: dict[str, Any], on: str, conditions: dict[str, Condition]) -> dict[str, Any]:
    if on == "update":
        return {"deletions": draw(st.sampled_from(["seen", "seen", "all", "none"]))}
    if on == "change":
        return draw(_change(stage, conditions))
    if on == "interval":
        return {"every": draw(st.sampled_from(["7ms", "10ms", "30ms"]))}
    if on == "threshold":
        return draw(_threshold(stage, conditions))
    after: dict[str, Any] = {}
    if on in ("time_limit", "quiet"):
        after["after"] = draw(st.sampled_from(["3ms", "15ms", "30ms"]))
    if on in ("time_limit", "window_close") and draw(st.booleans()):
        fallbacks = ["shut_down", "spill", *(["emit_early"] * 3 if on == "time_limit" else [])]
        bounds = draw(st.sampled_from([{"max_records": 1}, {"max_records": 2}, {"max_bytes": 40}]))
        after["buffer"] = {**bounds, "when_full": draw(st.sampled_from(fallbacks))}
    if on == "window_close" and after.get("buffer", {}).get("when_full", "spill") == "spill":
        grows = stage["reduce"] == "collect" or not {"tumbling", "hopping"} & {*stage["window"]}
        if not grows and (early := draw(st.sampled_from([None, *EARLY]))):
            after["early"] = early
    return after


@st.composite
def _threshold(draw: Draw, stage: dict[str, Any], conditions: dict[str, Condition]) -> dict[str, Any]:
    """A size, a time, a condition, or several; only what collects events has bytes to count."""
    collects = stage["reduce"] == "collect"
    after = st.fixed_dictionaries(
        {"after": st.sampled_from(["3ms", "12ms", "30ms"])},
        optional={"since": st.sampled_from(["arrival", "first_event", "last_flush"])},
    )
    counts: list[dict[str, Any]] = [{"count": 2}, {"count": 3}]
    size = st.sampled_from(
        [*counts, *([{"max_bytes": 60}, {"count": 3, "max_bytes": 80}] if collects else [])]
    )
    options = draw(size | after | st.builds(lambda left, right: {**left, **right}, size, after))
    if not draw(st.sampled_from([True, False, False])):
        return options
    columns = stage["reduce"] if isinstance(stage["reduce"], dict) else stage["select"]
    column, limit = draw(st.sampled_from([*_numbers(stage), "n"])), draw(st.integers(1, 4))
    until = f"{column} < {limit}" if column in columns else f"{limit} <= n"
    conditions[until] = below(column, limit) if column in columns else (lambda row: limit <= row["n"])
    return {**draw(st.sampled_from([options, {}])), "until": until}


@st.composite
def _change(draw: Draw, stage: dict[str, Any], conditions: dict[str, Condition]) -> dict[str, Any]:
    column = draw(st.sampled_from(_numbers(stage)))
    names = list(stage["select"] if stage["reduce"] == "latest" else stage["reduce"])
    sql = f"new.{column} <= old.{column}"
    within = {column: draw(st.sampled_from([0.5, 1, 0.1, "50%", "10%"]))}
    equal = draw(
        st.sampled_from(["exact", "exact", "bytes", {"within": within}, {"sql": sql}, {"python": PARITY}])
    )
    options: dict[str, Any] = {"equal": equal}
    if isinstance(equal, dict):
        conditions.update({sql: not_above(column), PARITY: same_parity})
    else:
        if equal == "bytes" and draw(st.booleans()):
            options["timestamp"] = True
        if stage["reduce"] == "latest" and draw(st.booleans()):
            options["state"] = "hash"
        if len(names) > 1 and draw(st.booleans()):
            options[draw(st.sampled_from(["columns", "ignore"]))] = [draw(st.sampled_from(names))]
    if draw(st.booleans()):
        options["heartbeat"] = draw(st.sampled_from(HEARTBEATS))
    if draw(st.sampled_from([True, False, False])):
        options["at_most_every"] = draw(st.sampled_from(AT_MOST_EVERY))
        options.pop("state", None)  # a hash cannot be emitted later
        if int(options.get("heartbeat", "25ms")[:-2]) < int(options["at_most_every"][:-2]):
            del options["heartbeat"]
    return options


# -- histories ------------------------------------------------------------------------------------------

KEYS = ["hot", "hot", "hot", "a", "b", "ä"]
HOMES = [("in", 0), ("in", 0), ("in", 1), ("other", 0)]
NUMBER = st.sampled_from(
    [0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 7.0, 0.3, 0.4, -0.0, math.nan, math.inf, -math.inf, None]
)
WHOLE = st.sampled_from([3, 3, 4, -4, 10**18, 10**18 + 1, 10**18 + 60, None])
EXACT = st.sampled_from([*map(Decimal, ("0.300", "0.300", "0.400", "0.401", "-1.000", "1000.001")), None])
TEXT = st.sampled_from(["p", "p", "q", "ö", "日本", None])
ENTRIES = [("a", 1.0), ("b", None), ("é", math.nan)]
MAP = st.none() | st.lists(st.sampled_from(ENTRIES), max_size=3, unique_by=lambda entry: entry[0])
VALUE = st.fixed_dictionaries({"x": NUMBER, "s": TEXT, "i": WHOLE, "d": EXACT, "m": MAP})


@dataclass(frozen=True)
class Draft:
    """A record that has no key and place yet: what time passes, how far it lags, whose copy it is."""

    home: tuple[str, int]
    step: int
    lag: int
    gap: int
    root: int | None
    rows: tuple[tuple[str, dict[str, Any] | None], ...]


# Hypothesis validates each new strategy object: made once for all histories, they save half of the time.
@cache
def _drafts(nulls: bool, size: int) -> st.SearchStrategy[list[Draft]]:
    value = st.one_of(VALUE, VALUE, VALUE, st.none()) if nulls else VALUE
    row = st.tuples(st.sampled_from(KEYS), value)
    draft = st.builds(
        Draft,
        home=st.sampled_from(HOMES),
        step=st.sampled_from([0, 0, 1, 2, 3, 5, 12]),
        lag=st.sampled_from([0, 0, 0, 0, 1, 4, 11, 25]),
        gap=st.sampled_from([1, 1, 1, 3]),
        root=st.none() | st.integers(0, 6),
        rows=st.one_of(st.tuples(row), st.tuples(row), st.tuples(row), st.tuples(row, row, row)),
    )
    return st.lists(draft, max_size=size)


@st.composite
def logs(draw: Draw, one_partition_per_key: bool, nulls: bool = True, size: int = 24) -> list[list[Record]]:
    """Source records in the order of arrival, each a list: the records that it was exploded into."""
    return _log(draw, one_partition_per_key, nulls, size)


def _log(draw: Draw, one_partition_per_key: bool, nulls: bool, size: int = 24) -> list[list[Record]]:
    now, offsets, log = 0, dict.fromkeys(HOMES, 0), []
    for arrival in draw(_drafts(nulls, size)):
        now += arrival.step
        by_home: dict[tuple[str, int], list[tuple[str, dict[str, Any] | None]]] = {}
        for key, content in arrival.rows:
            home = HOMES[KEYS.index(key) % len(HOMES)] if one_partition_per_key else arrival.home
            by_home.setdefault(home, []).append((key, content))
        for home, rows in by_home.items():
            offsets[home] += arrival.gap
            log.append(_exploded(home, offsets[home], max(0, now - arrival.lag), arrival.root, rows))
    return log


def _exploded(
    home: tuple[str, int], offset: int, timestamp: int, root: int | None, rows: Sequence[tuple[str, Any]]
) -> list[Record]:
    # every third root has a topic of its own: there the count starts over
    source = None if root is None else f"{'up' if root % 3 else 'else'}/0/{root};mid/1/{offset}"
    return [
        Record(key, content, *home, offset, timestamp, source, group)
        for group, (key, content) in enumerate(rows)
    ]


@cache
def _places(length: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, length), max_size=5)


CLOCK = st.none() | st.integers(0, 90)
CUT_AT = st.just(frozenset[tuple[str, int]]()) | st.frozensets(st.sampled_from(HOMES))


@st.composite
def cut(draw: Draw, log: Sequence[Sequence[Record]], clocks: bool = False) -> list[Batch]:
    """The log in batches, some of them empty; an exploded record is never parted. `clocks`: with clocks,
    which some of them do not apply everywhere.
    """
    return _batches(draw, log, clocks)


def _batches(draw: Draw, log: Sequence[Sequence[Record]], clocks: bool) -> list[Batch]:
    at = sorted(draw(_places(len(log))))
    return [
        Batch(
            tuple(record for group in log[a:b] for record in group),
            draw(CLOCK) if clocks else None,
            draw(CUT_AT) if clocks else frozenset(),
        )
        for a, b in zip([0, *at], [*at, len(log)], strict=True)
    ]


@cache
def _up_to_two(length: int) -> st.SearchStrategy[set[int]]:
    """Return the places of at most two of so many."""
    return st.sets(st.sampled_from(range(length)), max_size=2)


@st.composite
def histories(draw: Draw, one_partition_per_key: bool = False, nulls: bool = True) -> list[Batch]:
    """Batches with clocks; what was read in one may be delivered in a later one again."""
    batches = _batches(draw, _log(draw, one_partition_per_key, nulls), clocks=True)
    again = []
    for number, batch in enumerate(batches):
        earlier = [record for before in batches[:number] for record in before.records]
        positions = sorted({record.position for record in earlier})
        places = draw(_up_to_two(len(positions))) if positions else set()
        repeated = {positions[place] for place in places}
        extra = tuple(record for record in earlier if record.position in repeated)
        again.append(replace(batch, records=(*batch.records, *extra)))
    return again
