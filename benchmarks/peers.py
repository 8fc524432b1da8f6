"""The jobs that tidegate and its peers do side by side, and the peers: Kafka Streams with the programs in
`kafka_streams/`, Spark Structured Streaming, and a Spark job that does nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.measure import run_measured
from benchmarks.place import PROJECT, Place, topic_ends
from benchmarks.programs import Run, last_line, require_equal
from tidegate.errors import SetupFailed
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.records import Slice, read_slice
from tidegate.spark.java import OLDEST, find_java, java_home
from tidegate_dev.jars import ensure_jars


@dataclass(frozen=True)
class Job:
    """`pipeline` is the stem of tidegate's file, a sample or one in `pipelines/`; `streams` is the class of
    Kafka Streams' program in `kafka_streams/`. For the same events both send the same records: for each key
    the same values and timestamps in the same order.
    """

    pipeline: str
    streams: str


AVAILABILITY = Job("availability", "Availability")
BATCHES = Job("event_batches", "EventBatches")
WINDOWS = Job("window_sums", "WindowSums")
SUMS = Job("running_sums", "RunningSums")
RATE_LIMIT = Job("rate_limit", "RateLimit")


WITH_STATE, WITH_MERGE = "transformWithState", "foreachBatch + MERGE"
BARE = "bare Spark job"
SPARK_LOCK = Path(__file__).with_name("structured_streaming") / "jars.lock"
_MODULES = {WITH_STATE: "with_state", WITH_MERGE: "with_merge"}


@dataclass(frozen=True)
class StructuredStreaming:
    """One of the two programs. `jars` as Spark takes them."""

    module: str
    jars: str

    @classmethod
    def prepare(cls, home: Path, program: str) -> StructuredStreaming:
        """Fetch the jars below `home` if they are not there yet. Raises SetupFailed."""
        jars = ensure_jars("spark", home, SPARK_LOCK)
        return cls(f"benchmarks.structured_streaming.{_MODULES[program]}", ",".join(map(str, jars)))

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """Run the peer as `Peer` describes."""
        folder = place.home / "structured-streaming"
        arguments = [place.servers, source, sink, str(folder), self.jars]
        run = _run_module(place, self.module, *arguments, records=records)
        shutil.rmtree(folder)
        return run


@dataclass(frozen=True)
class BareJob:
    """A session, and as many rows as there are events through `mapInArrow`. It reads and sends nothing."""

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """Run the job as `Peer` describes; `source` and `sink` have no effect."""
        return _run_module(place, "benchmarks.bare_job", str(records), records=records)


def _run_module(place: Place, module: str, *arguments: str, records: int) -> Run:
    """A program that prints how many records it has processed."""
    command = [sys.executable, "-m", module, *arguments]
    usage, output = run_measured(command, {**place.env, "PYTHONPATH": str(PROJECT)}, place.home / "work")
    require_equal("records processed", int(last_line(output)), records)
    return Run(usage)


@dataclass(frozen=True)
class DuckDbQuery:
    """The job `availability` as one query over the topic's events in a file. It sends nothing.

    The file is written before the first run, and not measured.
    """

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """Run the query as `Peer` describes; `sink` has no effect."""
        events, expected = place.home / "events.json", place.home / "changes"
        if not expected.exists():
            expected.write_text(str(_write_events(place, source, events, records)))
        output = place.home / "changes.parquet"
        command = [sys.executable, "-m", "benchmarks.duckdb_query", str(events), str(output)]
        usage, printed = run_measured(command, {**place.env, "PYTHONPATH": str(PROJECT)}, place.home / "work")
        changes = int(last_line(printed))
        require_equal("changes", changes, int(expected.read_text()))
        return Run(usage, changes)


def _write_events(place: Place, topic: str, path: Path, records: int) -> int:
    """Write a topic's values, a line for each, and return how many changes a loop over them finds."""
    available: dict[tuple[str, int], bool] = {}
    changes = written = 0
    with path.open("wb") as file:
        for partition, end in sorted(topic_ends(place.servers, topic).items()):
            slice_ = Slice(topic, partition, 0, end)
            for block in read_slice(KafkaConfig({"bootstrap.servers": place.servers}), slice_):
                for message in block:
                    value = message.value() or b""
                    file.write(value + b"\n")
                    event = json.loads(value)
                    key, is_available = (event["storeId"], event["id"]), event["quantity"] > 0
                    changes += available.get(key) is not is_available
                    available[key] = is_available
                    written += 1
    require_equal("events written", written, records)
    return changes


STREAMS = "Kafka Streams"
_STREAMS_FOLDER = Path(__file__).with_name("kafka_streams")
STREAMS_LOCK = _STREAMS_FOLDER / "jars.lock"


@dataclass(frozen=True)
class StreamsPeer:
    """A program, compiled. `class_path` as Java takes it."""

    java: Path
    class_path: str
    program: str

    @classmethod
    def prepare(cls, home: Path, program: str) -> StreamsPeer:
        """Fetch the jars below `home` if they are not there yet, and compile. Raises SetupFailed."""
        compiler = find_compiler()
        jars = list(map(str, ensure_jars("streams", home, STREAMS_LOCK)))
        classes = home / "streams-classes"
        _compile(compiler, jars, classes)
        return cls(find_java(), os.pathsep.join([str(classes), *jars]), program)

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """A whole process that reads so many records of a topic, which are all, and commits its output.

        It is an application of its own, with empty state. Raises ResultWrong, CommandFailed.
        """
        state = place.home / "streams-state"
        command = [str(self.java), f"-Djava.io.tmpdir={place.home / 'work'}", "-cp", self.class_path]
        command += [self.program, place.servers, source, sink, f"streams-{sink}", str(state), str(records)]
        usage, output = run_measured(command, place.env, place.home / "work")
        shutil.rmtree(state)
        require_equal("records processed", int(last_line(output)), records)
        return Run(usage)


def find_compiler() -> Path:
    """A `javac`: beside the `java` that tidegate uses, or on PATH. Raises SetupFailed."""
    beside = java_home(find_java()) / "bin" / "javac"
    compiler = beside if beside.exists() else shutil.which("javac")
    if compiler is None:
        raise SetupFailed(
            f"There is no javac in {beside.parent} nor on PATH: Kafka Streams' program cannot be compiled",
            f"Install a JDK {OLDEST} or newer, or set JAVA_HOME to one.",
        )
    return Path(compiler)


def _compile(compiler: Path, jars: list[str], classes: Path) -> None:
    command = [str(compiler), "--release", str(OLDEST), "-cp", os.pathsep.join(jars), "-d", str(classes)]
    sources = sorted(map(str, _STREAMS_FOLDER.glob("*.java")))
    done = subprocess.run([*command, *sources], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupFailed(
            f"{compiler} did not compile {_STREAMS_FOLDER.name}: {done.stderr.strip()[:500]}",
            f"It takes a JDK {OLDEST} or newer.",
        )


class Peer(Protocol):
    """Another program for a job."""

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        """A whole process without state from before. It reads all records of `source`, which are so many, and
        sends its output to `sink`. Raises ResultWrong, CommandFailed.
        """


@dataclass(frozen=True)
class Rival:
    """A peer that is not there yet. `prepare` fetches and compiles it in a home, which is not measured.

    `sends`: its output must be the same as tidegate's.
    """

    name: str
    prepare: Callable[[Path, Job], Peer]
    sends: bool = True


KAFKA_STREAMS = Rival(STREAMS, lambda home, job: StreamsPeer.prepare(home, job.streams))
# these know one job only, availability
STRUCTURED_STREAMING = Rival(WITH_STATE, lambda home, _: StructuredStreaming.prepare(home, WITH_STATE))
STRUCTURED_STREAMING_BY_MERGE = Rival(
    WITH_MERGE, lambda home, _: StructuredStreaming.prepare(home, WITH_MERGE)
)
BARE_JOB = Rival(BARE, lambda *_: BareJob(), sends=False)
DUCKDB = Rival("one query of DuckDB over a file", lambda *_: DuckDbQuery(), sends=False)
