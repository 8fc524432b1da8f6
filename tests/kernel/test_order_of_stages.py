"""The order in which a later stage reads what an earlier one emits: kernels in batches, and one process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kernel.kernel_for_tests import Kernel
from tests.kernel.model import Batch, Emission, Record
from tests.kernel.model.chain import Serial, as_records
from tests.kernel.model.strategies import Case
from tidegate import kernel

SOURCE = {"topics": ["in"], "format": "json", "columns": "s string, i bigint"}
HOME = ("in", 0)
REDUCES: list[dict[str, Any]] = [
    {"reduce": "latest", "select": {"s": "s", "i": "i"}},
    {"reduce": "latest", "select": {"s": "s", "i": "i"}},
    {"reduce": {"s": "last(s)", "i": "sum(i)"}},
    {"reduce": {"s": "max(s)", "i": "count(*)"}},
]
WINDOWS: list[dict[str, str] | None] = [
    None,
    None,
    {"tumbling": "10ms", "grace": "5ms"},
    {"hopping": "10ms", "every": "5ms", "grace": "5ms"},
    {"hopping": "20ms", "every": "7ms", "grace": "0ms"},
    {"session": "5ms", "grace": "0ms"},
]
BUFFER = {"max_records": 2, "when_full": "emit_early"}
EMITS: list[dict[str, Any]] = [
    {"on": "update"},
    {"on": "change"},
    {"on": "change", "heartbeat": "10ms"},
    {"on": "time_limit", "after": "3ms"},
    {"on": "time_limit", "after": "15ms"},
    {"on": "time_limit", "after": "15ms", "buffer": BUFFER},
    {"on": "interval", "every": "7ms"},
    {"on": "quiet", "after": "5ms"},
    {"on": "threshold", "count": 2, "after": "12ms"},
    {"on": "threshold", "after": "12ms", "since": "last_flush"},
    {"on": "window_close"},
]


@st.composite
def stages(draw: st.DrawFn) -> dict[str, Any]:
    """A stage that reads the columns which it emits; its `key` regroups what comes in."""
    emit = draw(st.sampled_from(EMITS))
    windows = [window for window in WINDOWS if window is not None or emit["on"] != "window_close"]
    if emit["on"] == "change":
        windows = [window for window in windows if window is None or "session" not in window]
    if emit["on"] == "quiet":
        windows = [None]
    window = draw(st.sampled_from(windows))
    stage = {"name": "out", **draw(st.sampled_from(REDUCES)), "emit": {**emit, "clock": "stream"}}
    return stage if window is None else {**stage, "window": window}


@dataclass(frozen=True)
class Link:
    """A stage, and the column by which it regroups what it reads; `by_time` as in `kernel.Stage`."""

    stage: dict[str, Any]
    key: str | None = None
    by_time: bool = False


links = st.builds(Link, stages(), st.sampled_from([None, None, "s"]))


@st.composite
def logs(draw: st.DrawFn, partitions: int = 1) -> list[list[Record]]:
    """Records in the order of arrival, each a list: the records that it was exploded into."""
    row = st.tuples(st.sampled_from("aabc"), st.sampled_from("uv"), st.integers(0, 3))
    rows = st.lists(row, min_size=1, max_size=2)
    drawn = st.tuples(st.sampled_from([0, 0, 1, 2, 5, 12]), st.sampled_from([0, 0, 0, 4, 11]), rows)
    now, log = 20, []
    offsets = [0] * partitions
    for step, lag, content in draw(st.lists(drawn, max_size=18)):
        now += step
        partition = draw(st.integers(0, partitions - 1))
        offsets[partition] += 1
        log.append(
            [
                Record(key, {"s": s, "i": i}, "in", partition, offsets[partition], now - lag, None, part)
                for part, (key, s, i) in enumerate(content)
            ]
        )
    return log


@dataclass
class Ranked(Kernel):
    """A stage of a chain. `read` is what the next one reads of all batches, in that order."""

    key: str | None = None
    read: list[Emission] = field(default_factory=list)

    def ranked(self) -> list[dict[str, Any]]:
        """Return the emissions of the last batch, as the engine passes them to the next stage."""
        batches = [kernel.ranked(batch, self.stage.bound is not None) for batch in self.decided]
        rows = [row for batch in batches for row in batch.to_pylist()]
        rows.sort(key=lambda row: tuple(row[name] for name in ("topic", "partition", *kernel.RANK.names)))
        self.read += [_emission(row) for row in rows]
        return rows


@dataclass
class Later(Ranked):
    """A stage that reads emissions: each is a record with a turn of its own, and its rank."""

    turns: int = 0
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.schema = self.schema.append(pa.field("rank", kernel.RANK))

    def records(self, rows: Sequence[dict[str, Any]]) -> list[Record]:
        """Emissions as records; where they are regrouped, no deletions."""
        read = [row for row in rows if self.key is None or row["value"] is not None]
        self.ranks = dict(enumerate(read, self.turns + 1))
        self.turns += len(read)
        return [
            Record(
                row["key"] if self.key is None else str(row["value"][self.key]),
                *(row[name] for name in ("value", "topic", "partition")),
                turn,
                row["timestamp"],
            )
            for turn, row in self.ranks.items()
        ]

    def _row(self, record: Record) -> dict[str, Any]:
        rank = {name: self.ranks[record.offset][name] for name in kernel.RANK.names}
        return {**super()._row(record), "rank": rank}


def chained(links: Sequence[Link], batches: Sequence[Batch]) -> list[Ranked]:
    """The stages after these batches."""
    first = Ranked(Case(links[0].stage), source=SOURCE)
    first.stage = replace(first.stage, by_time=links[0].by_time)
    later = [Later(Case(link.stage), source=SOURCE, key=link.key) for link in links[1:]]
    for batch in batches:
        first.apply(batch)
        rows = first.ranked()
        for stage in later:
            stage.apply(Batch(tuple(stage.records(rows))))
            rows = stage.ranked()
    return [first, *later]


def _emission(row: dict[str, Any]) -> Emission:
    window = None if row["window_start"] is None else (row["window_start"], row["window_end"])
    return Emission(row["key"], row["value"], row["timestamp"], window, row["reason"], row["at"])


def serial(links: Sequence[Link], log: Sequence[Sequence[Record]]) -> list[list[Emission]]:
    """Return the emissions of all links, record by record."""
    groups = list(log)
    emitted: list[list[Emission]] = []
    for link in links:
        if emitted:
            groups = [[record] for record in as_records(emitted[-1], HOME, link.key)]
        emitted.append(Serial(link.stage).apply_all(groups))
    return emitted


def cut(log: Sequence[Sequence[Record]], places: Sequence[int]) -> list[Batch]:
    """The log in batches; an exploded record is never parted."""
    ends = [0, *sorted(places), len(log)]
    return [Batch(tuple(itertools.chain(*log[start:end]))) for start, end in itertools.pairwise(ends)]


def texts(emitted: Sequence[Sequence[Emission]]) -> list[list[str]]:
    return [[repr(emission) for emission in emissions] for emissions in emitted]


@examples(60)
@given(st.lists(links, min_size=1, max_size=3), logs(), st.data())
def test_later_stage_reads_one_order_for_any_cut(
    chain: list[Link], log: list[list[Record]], data: st.DataObject
) -> None:
    expected = texts(serial(chain, log))
    anywhere = data.draw(st.lists(st.integers(0, len(log)), max_size=4))
    for places in ((), range(1, len(log)), anywhere):
        assert texts([stage.read for stage in chained(chain, cut(log, places))]) == expected


def test_evictions_by_one_record_are_read_by_key() -> None:
    """The record of `a` has two windows; its own first one is due after those of `b`, and is read before."""
    emit = {"on": "time_limit", "after": "15ms", "buffer": BUFFER, "clock": "stream"}
    link = Link({"name": "out", **REDUCES[0], "window": WINDOWS[4], "emit": emit})
    log = [
        [Record(key, {"s": "u", "i": 0}, "in", 0, offset, at)]
        for key, offset, at in (("b", 1, 20), ("a", 2, 21))
    ]
    for places in ((), (1,)):
        (stage,) = chained([link], cut(log, places))
        assert [(emission.key, emission.window) for emission in stage.read] == [
            ("a", (7, 27)),
            ("b", (7, 27)),
            ("b", (14, 34)),
        ]
        assert texts([stage.read]) == texts(serial([link], log))


unbounded = links.filter(lambda link: "buffer" not in link.stage["emit"])
PASSING = Link({"name": "out", **REDUCES[0], "emit": {"on": "update", "clock": "stream"}})


@examples(60)
@given(unbounded, logs(partitions=3), st.data())
def test_key_in_several_partitions_keeps_order_through_stages(
    first: Link, log: list[list[Record]], data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(log)), max_size=4))
    for batches in (cut(log, ()), cut(log, places)):
        stage, *later = chained([first, PASSING, PASSING], batches)
        for key in "abc":
            values = [emission.value for emission in stage.emissions if emission.key == key]
            for passing in later:
                passed = [emission.value for emission in passing.emissions if emission.key == key]
                assert passed == _without_nothing(values)


def _without_nothing(values: Sequence[Any]) -> list[Any]:
    """Drop deletions of keys that do not exist, which `update` does not forward."""
    passed: list[Any] = []
    for value in values:
        if value is not None or (passed and passed[-1] is not None):
            passed.append(value)
    return passed


SUPPRESSING = Link({**PASSING.stage, "emit": {"on": "time_limit", "after": "10ms", "clock": "stream"}})
FULL = {"on": "threshold", "count": 2, "after": "10ms", "clock": "stream"}


def _stages(links: Sequence[Link], *records: tuple[str, int, int, int]) -> list[Ranked]:
    """The stages after one batch; a record is its key, partition, timestamp, and `i`."""
    offsets: dict[int, int] = {}
    batch = []
    for key, partition, timestamp, i in records:
        offsets[partition] = offsets.get(partition, 0) + 1
        batch.append(Record(key, {"s": "u", "i": i}, "in", partition, offsets[partition], timestamp))
    return chained(links, [Batch(tuple(batch))])


def _numbers(emissions: Sequence[Emission]) -> list[int]:
    return [emission.value["i"] for emission in emissions if emission.value]


def test_timers_of_one_instant_go_out_by_key() -> None:
    (stage,) = _stages([SUPPRESSING], ("b", 0, 5, 1), ("a", 0, 5, 2), ("c", 0, 30, 3))
    assert _numbers(stage.read) == [2, 1]


def test_record_that_reaches_an_instant_precedes_its_timers() -> None:
    full = Link({**SUPPRESSING.stage, "emit": FULL})
    records = [("a", 0, 5, 1), ("z", 0, 8, 2), ("z", 0, 15, 3), ("b", 0, 15, 4), ("b", 0, 15, 5)]
    (stage,) = _stages([full], *records)
    assert _numbers(stage.read) == [3, 1, 5]


def test_due_timer_follows_the_record_of_its_key() -> None:
    window = {"hopping": "10ms", "every": "5ms", "grace": "20ms"}
    filling = Link({**SUPPRESSING.stage, "window": window, "emit": FULL})
    stages = _stages([filling, PASSING], ("a", 0, 7, 1), ("a", 0, 12, 2), ("a", 0, 19, 3))
    # the last record fills [10, 20), and only then the timer of [0, 10) fires
    assert [(emission.at, emission.reason) for emission in stages[0].emissions] == [
        (12, "count"),
        (19, "count"),
        (17, "elapsed"),
    ]
    assert _numbers(stages[0].emissions) == _numbers(stages[1].emissions) == [2, 3, 1]


def test_stale_value_of_another_partition_is_not_last() -> None:
    first, second = _stages(
        [Link(PASSING.stage, by_time=True), PASSING], ("a", 0, 983, 1), ("a", 1, 1000, 2), ("a", 1, 995, 3)
    )
    assert _numbers(first.emissions) == _numbers(second.emissions) == [1, 2, 3]
