"""Rows of the table: small batches on a state that is there already, large or in many pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pyarrow.parquet as pq

from benchmarks.events import Availability, Load, key, send
from benchmarks.measure import LastingCommand, run_measured
from benchmarks.place import PIPELINE, Place, create_topics, ledger_url, running, write_pipeline
from benchmarks.programs import TIDEGATE, Batch, Run, require_equal, session
from benchmarks.turns import Row, Say, take_turns
from benchmarks.written_state import write_state
from tidegate.app import App
from tidegate.ledger import Ledger, Snapshot, Stream
from tidegate.storage import snapshot_name
from tidegate.storage.manifest import manifest_of

FEW_KEYS = 100_000
CHANGELOGS = 50
LOOK_UP = "tidegate state --key"
_STRIDE = 7_919  # a prime: each look-up is of another key


def measure_large_state(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """A batch of `load` on a state of all its keys, and on one of FEW_KEYS; then look-ups of single keys in
    the large one. Each state was written by one batch, and compacted. Raises ResultWrong, CommandFailed.
    """
    return _measure_sizes(load, rounds, master, say, _Stored.fill_and_compact)


def measure_huge_state(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """Measure states that no batch could write in reasonable time. Raises as `measure_large_state`."""
    return _measure_sizes(load, rounds, master, say, _Stored.write_directly)


def _measure_sizes(
    load: Load, rounds: int, master: str, say: Say, write: Callable[[_Stored], None]
) -> list[Row]:
    few = replace(load, keys=FEW_KEYS)
    with running(load.partitions, master) as place:
        large, small = _Stored(place, 1, load), _Stored(place, 2, few)
        for stored in (large, small):
            say(f"writing a state of {stored.load.keys:,} keys")
            write(stored)
            say(f"it takes {stored.snapshot_bytes / 1e6:,.1f} MB")
        programs = {f"{load.keys:,} keys": large.run, f"{few.keys:,} keys": small.run}
        megabytes = f"{large.snapshot_bytes / 1e6:,.0f} MB"
        title = f"{load.events:,} events on a state of {load.keys:,} keys, {megabytes}"
        batches = take_turns(title, programs, rounds, say)
        looks = {LOOK_UP: large.look_up, f"{LOOK_UP}, of {few.keys:,} keys": small.look_up}
        return [batches, take_turns(f"One key of {load.keys:,}", looks, rounds, say)]


def measure_changelogs(load: Load, rounds: int, master: str, say: Say) -> list[Row]:
    """A batch of `load` on a state of its keys in a snapshot and CHANGELOGS since, and in a snapshot alone.

    Each changelog is that of such a batch. Raises ResultWrong, CommandFailed.
    """
    with running(load.partitions, master) as place:
        pieces, whole = _Stored(place, 1, load), _Stored(place, 2, load)
        with session(place) as lasting:
            for stored in (pieces, whole):
                say(f"writing a state of {load.keys:,} keys, and {CHANGELOGS} changelogs")
                stored.fill(lasting)
                stored.compact()
                for _ in range(CHANGELOGS):
                    stored.run(lasting=lasting)

        def on_snapshot(number: int) -> Run:
            whole.compact()
            return whole.run(number)

        def check(number: int) -> None:
            require_equal("changelogs", (pieces.changelogs, whole.changelogs), (CHANGELOGS + number, 1))

        programs = {f"{CHANGELOGS} changelogs": pieces.run, "a snapshot": on_snapshot}
        return [
            take_turns(f"{load.events:,} events after {CHANGELOGS} batches", programs, rounds, say, check)
        ]


class _Stored:
    """A generation of the pipeline, with topics of its own; it reads loads like `load`, one after the other.

    Each batch is checked: it must emit as many changes as there are. All raise ResultWrong, CommandFailed.
    """

    def __init__(self, place: Place, generation: int, load: Load) -> None:
        self.load = load
        self._place = place
        self._generation = generation
        self._source, self._sink = f"source-{generation}", f"sink-{generation}"
        self._availability = Availability(load.keys)
        self._next_event = 0
        create_topics(place.servers, load.partitions, self._source, self._sink)

    def fill(self, lasting: LastingCommand | None = None) -> None:
        """One event of each key, and one batch that reads them."""
        self._batch(replace(self.load, events=self.load.keys, in_turn=True), lasting)

    def run(self, number: int = 0, lasting: LastingCommand | None = None) -> Run:
        """New events, and their batch: a process of its own, or in one that goes on."""
        return self._batch(self.load, lasting)

    def compact(self) -> None:
        """Fold the state into a snapshot."""
        self._write_pipeline()
        run_measured([TIDEGATE, "compact", PIPELINE], self._place.env, self._place.home / "work")

    def fill_and_compact(self) -> None:
        """A state as it is after a while."""
        self.fill()
        self.compact()

    def write_directly(self) -> None:
        """A batch of a few events, and in place of its state a snapshot with a row like its own per key."""
        self._batch(replace(self.load, events=self.load.partitions, in_turn=True), None)
        app, stream = App.from_environment(self._place.env), self._stream
        attempt = app.ledger.attempt(stream, 1)
        assert attempt is not None, "the batch was computed"
        (file, *_) = app.manifest(stream, attempt.manifest).files_of("state", PIPELINE)
        lake, name = app.lake(stream), snapshot_name(1)
        with lake.store.open(file.path) as source:
            row = pq.read_table(source).slice(0, 1)
        folder = lake.files("state", file.stage, name)
        files = write_state(lake.store, folder, file.stage, row, self.load.keys, self.load.partitions)
        manifest = app.write_manifest(stream, manifest_of(name, 1, files))
        require_equal("noted", app.ledger.add_snapshot(Snapshot(stream, 1, manifest), after=0), True)
        self._availability = Availability(self.load.keys, row["value"][0].as_py()["isAvailable"])

    @property
    def changelogs(self) -> int:
        """Count the batches since the last snapshot."""
        return self._ledger.head(self._stream).seq - self._ledger.snapshots(self._stream)[-1].seq

    @property
    def snapshot_bytes(self) -> int:
        """Return the bytes of the files of the last snapshot."""
        return self._ledger.snapshots(self._stream)[-1].manifest.file_bytes

    @property
    def _ledger(self) -> Ledger:
        return Ledger.open(ledger_url(self._place.home))

    @property
    def _stream(self) -> Stream:
        return Stream(PIPELINE, self._generation)

    def look_up(self, number: int) -> Run:
        """The command that shows the state of one key."""
        requested_key = key(number * _STRIDE % self.load.keys)
        command = [TIDEGATE, "state", PIPELINE, "--generation", str(self._generation), "--key", requested_key]
        usage, output = run_measured([*command, "--json"], self._place.env, self._place.home / "work")
        require_equal("the keys shown", [row["key"] for row in json.loads(output)], [requested_key])
        return Run(usage)

    def _batch(self, load: Load, lasting: LastingCommand | None) -> Run:
        load = replace(load, first=self._next_event)
        self._next_event += load.events
        send(self._place.servers, self._source, load)
        self._write_pipeline()
        run = Batch(self._generation, self._source, self._sink, load.events).run(self._place, lasting)
        require_equal("changes", run.emitted, self._availability.changes(load))
        return run

    def _write_pipeline(self) -> None:
        write_pipeline(self._place.home, self._generation, self._source, self._sink)
