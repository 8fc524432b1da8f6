"""The table's programs and checks at a tiny scale; Kafka Streams runs only when figures are taken."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from benchmarks.beside_peers import measure_cold, measure_warm
from benchmarks.events import Availability, Load, draw, key, send, timestamp_ms
from benchmarks.measure import CommandFailed, LastingCommand, Usage
from benchmarks.outputs import require_same_output
from benchmarks.place import Place, create_topics, topic_ends
from benchmarks.programs import ResultWrong, Run
from benchmarks.table import ENTRIES
from benchmarks.turns import Row, row_object, take_turns
from confluent_kafka import Producer

from benchmarks import peers, stored
from tidegate.errors import SetupFailed
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.jars import locked_jars

_ECHO = "import sys\nfor line in sys.stdin: print('noise'); print('{' + line.strip() + '}', flush=True)"


def _ignore(_: str) -> None:
    pass


def _took(seconds: float) -> Run:
    return Run(Usage(seconds, cpu_seconds=1, peak_tree_bytes=2, peak_process_bytes=1))


def test_programs_take_turns_and_each_round_is_checked() -> None:
    done: list[str] = []

    def program(name: str, seconds: float) -> Run:
        done.append(name)
        return _took(seconds)

    programs = {"a": lambda number: program("a", 3.0 * number), "b": lambda _: program("b", 2.0)}
    row = take_turns("row", programs, 2, _ignore, lambda number: done.append(f"checked {number}"))
    assert done == ["a", "b", "checked 1", "a", "b", "checked 2"]
    assert row.ratios("a") == [1.5, 3.0]
    assert row.beyond("a") == [1.0, 4.0]
    assert row_object(row)["results"]["a"]["ratio_of_medians"] == 2.25


def test_lasting_command_answers_lines_and_is_ended(tmp_path: Path) -> None:
    with LastingCommand([sys.executable, "-c", _ECHO], os.environ, tmp_path) as lasting:
        answers = [lasting.ask(line) for line in ("1", "2")]
        pid = lasting.pid
    assert [answer for _, answer in answers] == ["{1}\n", "{2}\n"]
    assert all(usage.seconds > 0 for usage, _ in answers)
    assert not Path(f"/proc/{pid}").exists()


def test_command_that_ends_without_answer_failed(tmp_path: Path) -> None:
    failing = [sys.executable, "-c", "raise SystemExit('gone')"]
    with LastingCommand(failing, os.environ, tmp_path) as lasting, pytest.raises(CommandFailed, match="gone"):
        lasting.ask("1")


def test_changes_equal_a_plain_loop_over_loads() -> None:
    availability = Availability(50)
    first, later = Load(events=1_000, keys=50), Load(events=500, keys=50, first=1_000)
    events = [
        (product, quantity > 0)
        for load in (first, later)
        for _, products, quantities in draw(load)
        for product, quantity in zip(products, quantities, strict=True)
    ]
    last: dict[int, bool] = {}
    changes = []
    for product, available in events:
        changes.append(last.get(product) != available)
        last[product] = available
    assert availability.changes(first) == sum(changes[:1_000])
    assert availability.changes(later) == sum(changes[1_000:])


def test_every_row_has_a_load() -> None:
    assert all(entry.load.events > 0 < entry.load.keys for entry in ENTRIES.values())


def test_peer_jars_are_locked_apart_from_ours() -> None:
    jars = locked_jars("streams", peers.STREAMS_LOCK)
    versions = {jar.artifact: jar.version for jar in jars}
    assert versions["kafka-streams"] == versions["kafka-clients"] == "4.3.1"
    assert {"rocksdbjni", "jackson-databind", "slf4j-api"} < versions.keys()
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.size_bytes > 0 for jar in jars)
    with pytest.raises(SetupFailed, match="'streams'"):
        locked_jars("streams")


def test_jars_that_spark_lacks_are_locked() -> None:
    versions = {jar.artifact: jar.version for jar in locked_jars("spark", peers.SPARK_LOCK)}
    assert versions["spark-sql-kafka-0-10_2.13"] == pyspark.__version__
    assert {"kafka-clients", "commons-pool2", "delta-spark_4.1_2.13", "delta-storage"} < versions.keys()


def test_missing_compiler_is_reported_for_the_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_java", lambda: tmp_path / "bin" / "java")
    monkeypatch.setattr(peers, "java_home", lambda _: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupFailed, match=r"There is no javac in .* Install a JDK 17 or newer"):
        peers.find_compiler()


@pytest.mark.broker
def test_topics_with_equal_values_per_key_are_equal(broker: KafkaBroker) -> None:
    servers = broker.bootstrap_servers
    _fill(servers, "outputs-a", [("x", "1", 0), ("y", "1", 1), ("x", "2", 0)])
    _fill(servers, "outputs-b", [("x", "1", 1), ("x", "2", 1), ("y", "1", 1)])
    require_same_output(servers, "outputs-a", "outputs-b")


@pytest.mark.broker
@pytest.mark.parametrize(
    "other",
    [
        [("x", "2", 0), ("x", "1", 0), ("y", "1", 1)],
        [("x", "1", 0), ("y", "1", 1)],
        [("x", "1", 0), ("x", "2", 0), ("y", "1", 1), ("y", "1", 1)],
        [("x", "1", 0), ("x", "2", 0), ("z", "1", 1)],
    ],
    ids=["in another order", "one less", "one twice", "of another key"],
)
def test_topics_that_differ_are_no_comparison(
    broker: KafkaBroker, other: list[tuple[str, str, int]], request: pytest.FixtureRequest
) -> None:
    servers, name = broker.bootstrap_servers, f"outputs-{request.node.callspec.id.replace(' ', '-')}"
    _fill(servers, f"{name}-a", [("x", "1", 0), ("x", "2", 0), ("y", "1", 1)])
    _fill(servers, f"{name}-b", other)
    with pytest.raises(ResultWrong, match=r"differ in [12] of"):
        require_same_output(servers, f"{name}-a", f"{name}-b")


@pytest.mark.broker
def test_topics_without_records_are_no_comparison(broker: KafkaBroker) -> None:
    create_topics(broker.bootstrap_servers, 2, "outputs-none", "outputs-none-either")
    with pytest.raises(ResultWrong, match="no records"):
        require_same_output(broker.bootstrap_servers, "outputs-none", "outputs-none-either")


def _fill(servers: str, topic: str, records: list[tuple[str, str, int]]) -> None:
    """A topic of (key, value, partition)."""
    create_topics(servers, 2, topic)
    producer = Producer({"bootstrap.servers": servers})
    for name, value, partition in records:
        producer.produce(topic, value, name, partition=partition, timestamp=1)
    assert producer.flush(30) == 0


@pytest.mark.broker
def test_load_is_sent_whole_by_product(broker: KafkaBroker) -> None:
    load = Load(events=1_000, keys=50, partitions=2)
    create_topics(broker.bootstrap_servers, 2, "loads")
    send(broker.bootstrap_servers, "loads", load)
    sent = [product % 2 for _, products, _ in draw(load) for product in products]
    assert topic_ends(broker.bootstrap_servers, "loads") == {0: sent.count(0), 1: sent.count(1)}


class LoopPeer:
    """A peer that is a plain loop over the events that were sent, in place of Kafka Streams."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def run(self, place: Place, source: str, sink: str, records: int) -> Run:
        producer = Producer({"bootstrap.servers": place.servers})
        last: dict[int, bool] = {}
        for begin, products, quantities in draw(self._load):
            for event, (product, quantity) in enumerate(zip(products, quantities, strict=True), begin):
                if last.get(product) != (quantity > 0):
                    last[product] = quantity > 0
                    values = {**json.loads(key(product)), "isAvailable": quantity > 0}
                    text = json.dumps(values, separators=(",", ":"))
                    producer.produce(sink, text, key(product), timestamp=timestamp_ms(event))
        assert producer.flush(30) == 0
        return _took(1.0)


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize("measure", [measure_cold, measure_warm])
def test_a_batch_sends_what_a_plain_loop_finds(
    measure: Callable[..., list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(events=2_000, keys=100)
    monkeypatch.setattr(peers.StreamsPeer, "prepare", lambda *_: LoopPeer(load))
    (row,) = measure(load, 1, "local[2]", _ignore)
    ours, theirs = (turn.run for turn in row.turns)
    assert ours.emitted == Availability(100).changes(load)
    assert {"plan", "compute", "validate", "commit", "publish"} == ours.steps.keys()
    assert ours.usage.peak_tree_bytes > ours.usage.peak_process_bytes > 100 << 20
    assert row.ratios(row.programs[0]) == [ours.usage.seconds / theirs.usage.seconds]


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize("measure", [stored.measure_large_state, stored.measure_huge_state])
def test_batches_and_lookups_are_measured_on_two_states(
    measure: Callable[..., list[Row]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "FEW_KEYS", 50)
    batches, looks = measure(Load(events=200, keys=500), 1, "local[2]", _ignore)
    assert batches.programs == ("500 keys", "50 keys")
    assert looks.programs == (stored.LOOK_UP, f"{stored.LOOK_UP}, of 50 keys")


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.long
def test_batches_are_measured_over_changelogs_and_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "CHANGELOGS", 2)
    (row,) = stored.measure_changelogs(Load(events=200, keys=500), 1, "local[2]", _ignore)
    assert row.programs == ("2 changelogs", "a snapshot")
