"""A worker of the matrix: one warm Spark, and one run after the other. Lines come in, results go out.

It imports everything, starts no threads, and forks: see `processes`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.faults import imports as _imports  # noqa: F401  # before the first fork
from tests.faults.airflow import Airflow, notes_file, overlap
from tests.faults.databases import PostgresDatabases, SqliteFiles
from tests.faults.fault import PLAIN, Case, case_text, parse_case
from tests.faults.history import (
    BATCHES,
    MAINTAINED,
    OF_BATCHES,
    SHAPES,
    SINGLE,
    Scene,
    new_name,
    send_input,
    shape_of,
)
from tests.faults.processes import die_with, in_child
from tests.faults.server import KeptServer
from tests.faults.steps import NOTHING_TO_DO, STEPS, UNTYPED, Spark
from tests.faults.warm import WarmSpark

DATABASES = "TIDEGATE_FAULTS_DATABASES"
"""What the runs of a worker use in turn, as JSON: null for SQLite, or the URL of a PostgreSQL server."""
_NO_SERVER = ("lose_server", "hang_server")
"""What a step in a server cannot live through: it ends as `SparkLost`."""


@dataclass(frozen=True)
class Result:
    """The result of one run of the matrix: `wrong` is empty if it equals an undisturbed run."""

    case: str
    databases: str
    wrong: list[str]
    fired: list[str]
    codes: list[int | None]
    zombie: str
    seconds: float


class Worker:
    """Everything that runs share: the broker, the source topic, Spark, and what an undisturbed run gives."""

    def __init__(self, home: Path, servers: str, databases: Sequence[str | None]) -> None:
        self.home = home
        self._servers = servers
        self._source = f"source-{os.getpid()}-{home.name}"
        home.mkdir(parents=True, exist_ok=True)
        stores = [PostgresDatabases(url, home.name) if url else SqliteFiles(home) for url in databases]
        self._stores: dict[str, PostgresDatabases | SqliteFiles] = {store.kind: store for store in stores}
        self._kinds = itertools.cycle(self._stores)
        self.spark = WarmSpark.start(home / "spark.log")
        self._server: KeptServer | None = None
        self._expected: dict[tuple[str, str, int, bool], Mapping[str, Any]] = {}
        self.hits: dict[tuple[int, str], dict[str, int]] = {}

    def stop(self) -> None:
        """End what it has started."""
        if self._server is not None:
            self._server.stop()
        self.spark.stop()

    def prepare(self) -> None:
        """Send the input, and observe the results of undisturbed runs."""
        servers, source = self._servers, self._source
        in_child(lambda: send_input(servers, source), self.home / "input.log")
        for store in self._stores.values():
            self._make_ledger(store.empty_ledger)
        scene = self._undisturbed(PLAIN, next(iter(self._stores)))
        for batch in range(1, BATCHES + 2):
            for step in STEPS:
                file = notes_file(scene, batch, [step])
                if file.exists():
                    self.hits[batch, step] = json.loads(file.read_text())["hits"]

    def _undisturbed(self, history: str, kind: str) -> Scene:
        """A history in which nothing fails: what is seen after its commits and batches is what to expect."""
        scene = self.scene(history, kind)

        def note(published: bool = False) -> None:
            self._expected[kind, history, scene.databases.head(), published] = self.observe(scene)

        calm = Airflow(scene, self.spark, apart=True, look=note)
        for batch in range(1, _batches_of(history) + 1):
            calm.play(batch)
            import_all(_modules_of(scene))
            note(published=True)
        scene.stop_receiver()
        if history == MAINTAINED:
            self._require_nobody_can_tell(kind)
        if history == PLAIN:
            calm.run(BATCHES + 1)
        return scene

    def _require_nobody_can_tell(self, kind: str) -> None:
        """It changes nothing but how many rows the state is counted to have, and which batches are noted."""
        for batch in range(1, BATCHES + 1):
            plain, seen = (self._expected[kind, history, batch, True] for history in (PLAIN, MAINTAINED))
            differs = [part for part in plain if part not in OF_BATCHES and seen[part] != plain[part]]
            assert not differs, (batch, {part: (plain[part], seen[part]) for part in differs})

    def _make_ledger(self, url: str) -> None:
        """A migrated ledger, so that not every run has to make its own."""
        from tidegate.ledger import Ledger

        in_child(lambda: Ledger.open(url)._engine.dispose(), self.home / "ledger.log")

    def scene(self, history: str, kind: str) -> Scene:
        """A new one."""
        folder, name = self.home / f"s{time.time_ns()}", new_name()
        folder.mkdir()
        databases = self._stores[kind].create(folder, name)
        made = Scene(folder, self._servers, self._source, databases, history, name)
        in_child(made.create, made.log)
        return made

    def observe(self, scene: Scene) -> Mapping[str, Any]:
        """Observe a scene in a process of its own."""
        return in_child(scene.observe, scene.log)

    def run(self, case: Case) -> Result:
        """One run of the matrix."""
        began = time.monotonic()
        scene = self._disturbed(shape_of(case[0].history))
        wrong: list[str] = []

        def look() -> None:
            batch = scene.databases.head()
            wrong.extend(f"{part} after commit {batch}" for part in self._differences(scene, published=False))

        airflow = Airflow(scene, self._spark_of(case[0].history), case, look=look)
        try:
            for batch in _stops(case, scene.history):
                wrong += self._wrong_after(batch, airflow, _are_retried(case, batch))
            if case[0].outside is not None:
                wrong += _untold(airflow, case[0].outside)
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        fired = airflow.fired()
        if fired != [fault.entry for fault in case]:
            wrong.append(f"fired: {fired}")
        self._put_away(scene, wrong)
        return Result(
            case_text(case),
            scene.databases.kind,
            wrong,
            fired,
            airflow.codes,
            airflow.zombie_said,
            round(time.monotonic() - began, 2),
        )

    def _wrong_after(self, batch: int, airflow: Airflow, retried: bool) -> list[str]:
        """Go on until a batch is in, and return what then differs from an undisturbed history."""
        airflow.play(batch)
        wrong = [f"{part} after batch {batch}" for part in self._differences(airflow.scene)]
        if airflow.halted:
            wrong.append("a run has halted, as if only a person could help")
        if retried and airflow.runs != batch:
            wrong.append(f"it took {airflow.runs} runs to batch {batch}: tries were not enough")
        return wrong

    def overlap(self, late_s: float) -> Result:
        """Two whole runs of one pipeline at once: one must wait for the other, and find nothing to do."""
        began = time.monotonic()
        scene = self._disturbed(SINGLE)
        codes = overlap(scene, self.spark, late_s)
        wrong = self._differences(scene)
        if NOTHING_TO_DO not in codes:
            wrong.append("both runs had something to do")
        self._put_away(scene, wrong)
        seconds = round(time.monotonic() - began, 2)
        return Result(f"overlap {late_s}", scene.databases.kind, wrong, [], codes, "", seconds)

    def _spark_of(self, history: str) -> Spark:
        """Return the Spark of a history. A server is started for its first batch, and anew after it has
        grown.
        """
        if history not in SHAPES:
            return self.spark
        self._server = self._server or KeptServer(self.home / "server")
        self._server.maintain()
        return self._server

    def _disturbed(self, history: str) -> Scene:
        kind = next(self._kinds)
        for name in (PLAIN, history):
            if (kind, name, 1, True) not in self._expected:
                self._undisturbed(name, kind)
        return self.scene(history, kind)

    def _differences(self, scene: Scene, published: bool = True) -> list[str]:
        seen, databases = self.observe(scene), scene.databases
        expected = self._expected[databases.kind, scene.history, databases.head(), published]
        return [name for name, value in seen.items() if value != expected[name]]

    def _put_away(self, scene: Scene, wrong: list[str]) -> None:
        """Remove a scene, or keep what went wrong for inspection."""
        in_child(self.spark.let_go, self.home / "let_go.log")
        scene.stop_receiver()
        if wrong:
            wrong.append(f"log: {scene.log}")
        else:
            shutil.rmtree(scene.folder, ignore_errors=True)
            self._stores[scene.databases.kind].drop(scene.name)
            in_child(scene.delete_topics, self.home / "delete.log")


def _modules_of(scene: Scene) -> set[str]:
    """Return the modules that the steps' processes of an undisturbed history have imported."""
    return {name for file in scene.folder.glob("notes.*") for name in json.loads(file.read_text())["modules"]}


def import_all(names: Iterable[str]) -> None:
    """Import what a step's process needs before the next one is forked: it then has it at once."""
    for name in sorted(names):
        if name not in sys.modules:
            with suppress(ImportError):  # not all that has a name can be imported by it
                import_module(name)
    assert threading.active_count() == 1, "a process with threads cannot fork"


def _batches_of(history: str) -> int:
    return 1 if history == SINGLE else BATCHES


def _are_retried(case: Case, batch: int) -> bool:
    """Whether up to a batch retries must be enough, without a later run: nobody stops or loses a lease."""
    return not any(
        fault.action.startswith("pause") or fault.name == "ledger.renew"
        for fault in case
        if fault.batch <= batch
    )


def _stops(case: Case, history: str) -> list[int]:
    """Return the batches after which to look: those with a fault; never the first alone."""
    batches = {fault.batch for fault in case}
    if batches == {1} and _batches_of(history) > 1:
        return [2]
    return sorted(batches)


def _untold(airflow: Airflow, outside: str) -> list[str]:
    """Return the messages that the steps lack about a fault from outside."""
    wrong = []
    if UNTYPED in airflow.codes or airflow.zombie_said.startswith(f"exit code {UNTYPED}:"):
        wrong.append("an error has no type")
    if outside in _NO_SERVER and "SparkLost" not in airflow.scene.log.read_text():
        wrong.append("no step has ended as SparkLost")
    return wrong


def main(home: str, servers: str) -> int:
    """Cases from standard input, a line each, until it ends; a line of JSON for each result."""
    die_with(os.getppid())
    worker = Worker(Path(home), servers, json.loads(os.environ[DATABASES]))
    try:
        worker.prepare()
        _say({"hits": [[*place, counts] for place, counts in worker.hits.items()]})
        for line in sys.stdin:
            command, _, late_s = line.strip().partition(" ")
            result = worker.overlap(float(late_s)) if late_s else worker.run(parse_case(command))
            _say(asdict(result))
    finally:
        worker.stop()
    return 0


def _say(message: Mapping[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
