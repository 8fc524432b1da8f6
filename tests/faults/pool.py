"""Workers side by side, each with its own Spark, on one broker."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.faults.catalogue import Hits
from tests.faults.fault import Case, case_text
from tests.faults.worker import DATABASES, Result

Job = TypeVar("Job")
ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """One worker. The folder keeps what is needed to look at a run that went wrong."""

    def __init__(self, home: Path, servers: str, databases: Sequence[str | None]) -> None:
        home.mkdir(parents=True)
        self.log = home / "worker.log"
        paths = [str(ROOT), str(ROOT / "include"), os.environ.get("PYTHONPATH", "")]
        # one thread: it forks
        more = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        more[DATABASES] = json.dumps(databases)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.worker", str(home), servers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, **more},
            )

    def hits(self) -> Hits:
        """Return where an undisturbed run meets each failpoint. Wait for it before anything else."""
        return {(batch, step): counts for batch, step, counts in self._answer()["hits"]}

    def run(self, case: Case) -> Result:
        """One run of the matrix."""
        return self._ask(case_text(case))

    def overlap(self, late_s: float) -> Result:
        """Two runs at once; the second starts so much later."""
        return self._ask(f"overlap {late_s}")

    def _ask(self, line: str) -> Result:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return Result(**self._answer())

    def stop(self) -> None:
        """End it, and with it all that it started."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it in the middle of a run; what it started dies with it."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"A worker has ended; {self.log}:\n{self.log.read_text()[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class Pool:
    """A worker for each of `databases`, used in turn by its runs: null is SQLite, a URL PostgreSQL.

    Use it as a context manager; `hits` is known inside.
    """

    home: Path
    servers: str
    databases: Sequence[Sequence[str | None]]

    def __enter__(self) -> Pool:
        self.workers: list[WorkerProcess] = []
        try:
            for number, databases in enumerate(self.databases):
                home = self.home / f"worker{number}"
                self.workers.append(WorkerProcess(home, self.servers, databases))
            self.hits = [worker.hits() for worker in self.workers][-1]
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        for worker in self.workers:
            worker.stop()

    def run(self, cases: Iterable[Case], progress: Callable[[Result], None] = lambda _: None) -> list[Result]:
        """Run all cases, each by any worker that is free."""
        return self._shared(list(cases), WorkerProcess.run, progress)

    def overlaps(self, late_s: Iterable[float]) -> list[Result]:
        """Two runs at once, for each of these delays."""
        return self._shared(list(late_s), WorkerProcess.overlap, lambda _: None)

    def _shared(
        self,
        jobs: Sequence[Job],
        do: Callable[[WorkerProcess, Job], Result],
        progress: Callable[[Result], None],
    ) -> list[Result]:
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        results: list[Result] = []

        def work(worker: WorkerProcess) -> None:
            while True:
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    return
                results.append(do(worker, job))
                progress(results[-1])

        with ThreadPoolExecutor(len(self.workers)) as threads:
            try:
                for done in [threads.submit(work, worker) for worker in self.workers]:
                    done.result()
            except BaseException:
                for worker in self.workers:
                    worker.kill()
                raise
        return results
