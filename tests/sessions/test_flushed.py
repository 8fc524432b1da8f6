"""What a batch wrote outlives a loss of power before anything says that it is there: by its system calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.sessions import flushed
from tests.sessions.system_calls import Call, calls, traced
from tidegate_dev.broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.long]


@dataclass(frozen=True)
class Batch:
    """The system calls of a batch, and the files that it wrote. `lake`: its root, which the batch made."""

    calls: Sequence[Call]
    files: Sequence[str]
    manifest: str
    lake: str
    ledger: str
    marks: str

    def begin_of(self, path: str) -> int:
        """Return when a file is made or a mark is set."""
        return min(call.begin for call in self.calls if call.path == path and call.creates)

    def mark(self, name: str) -> int:
        return self.begin_of(f"{self.marks}/{name}")

    def is_flushed(self, path: str, begin: int, end: int) -> bool:
        """Whether a file or folder is flushed, wholly between two lines."""
        return any(
            call.path == path and begin < call.begin and call.end < end
            for call in self.calls
            if call.name in ("fsync", "fdatasync")
        )

    def folders(self, path: str) -> Iterator[str]:
        """Yield the folders that must be flushed with a file: up to the root, and above the root where it
        was made.
        """
        made = {call.path for call in self.calls if call.name.startswith("mkdir")}
        for folder in map(str, Path(path).parents):
            yield folder
            if not folder.startswith(self.lake) and folder not in made:
                return


def complaints(batch: Batch) -> list[str]:
    """Return what should have been flushed and was not."""
    begins, written = batch.begin_of(batch.manifest), batch.mark("written")
    missing = []
    for path, end in [*((path, begins) for path in batch.files), (batch.manifest, written)]:
        made = batch.begin_of(path)
        places = [path, *batch.folders(path)]
        missing += [
            f"{place} of {path}"
            for place in places
            if not batch.is_flushed(place, _since(batch, place, made), end)
        ]
    for begin, end in (("written", "computed"), ("validated", "committed")):
        if not batch.is_flushed(batch.ledger, batch.mark(begin), batch.mark(end)):
            missing.append(f"the ledger, {begin} to {end}")
    return missing


def _since(batch: Batch, place: str, made: int) -> int:
    """Return the time from which a flush counts: for a folder above the root, when something was made in
    it.
    """
    if place.startswith(batch.lake):
        return made
    inside = [call for call in batch.calls if str(Path(call.path).parent) == place]
    return min(call.begin for call in inside if call.name.startswith("mkdir"))


@pytest.fixture(scope="module")
def batch(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    folder = tmp_path_factory.mktemp("flushed")
    program = [sys.executable, "-m", flushed.__name__, broker.bootstrap_servers, str(folder)]
    command = traced(program, folder / "trace")
    if command is None:
        pytest.skip("there is no strace here, or it may trace nothing")
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    written = json.loads(done.stdout.splitlines()[-1])
    with (folder / "trace").open(errors="replace") as lines:
        return Batch(list(calls(lines)), **written, marks=str(folder / "marks"))


def test_files_manifest_and_ledger_flush_in_order(batch: Batch) -> None:
    assert {Path(path).parts[-4] for path in batch.files} == {"state", "outbox", "quarantine"}
    assert complaints(batch) == []


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(lambda batch: batch.files[0], id="a data file"),
        pytest.param(lambda batch: str(Path(batch.files[0]).parent), id="its folder"),
        pytest.param(lambda batch: batch.lake, id="the root"),
        pytest.param(lambda batch: str(Path(batch.lake).parent), id="the folder in which the root was made"),
        pytest.param(lambda batch: batch.manifest, id="the manifest"),
        pytest.param(lambda batch: str(Path(batch.manifest).parent), id="the manifest's folder"),
        pytest.param(lambda batch: batch.ledger, id="the ledger"),
    ],
)
def test_a_flush_that_were_missing_would_be_seen(batch: Batch, lost: Callable[[Batch], str]) -> None:
    path = lost(batch)
    left = [call for call in batch.calls if call.path != path or not call.name.endswith("sync")]
    assert len(left) < len(batch.calls)
    doctored = Batch(left, batch.files, batch.manifest, batch.lake, batch.ledger, batch.marks)
    assert complaints(doctored)
