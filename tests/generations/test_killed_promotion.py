"""`tidegate generation promote`, killed: one of the two is in charge, and calling it again finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.generations.two_generations import Beside
from tests.sampling import sampled
from tidegate.ledger import Stream

pytestmark = pytest.mark.process

NEW = [
    ("visitors/2", 1, "a", 10),
    ("visitors/2", 1, "b", 10),
    ("visitors/2", 2, "a", 20),
    ("visitors/2", 2, "c", 20),
]
KILLED = {
    "ledger.acquire=kill_after@2": 1,
    "ledger.promote=kill": 1,
    "ledger.promote.noted=kill_after": 1,
    "ledger.promote=kill_after": 2,
    "sql.commit=kill_after@2": 2,
    "ledger.add_publication=kill@2": 2,
}
"""What kills it, and who is in charge then."""


@pytest.mark.parametrize("fault", sampled(KILLED, ("ledger.promote=kill", "ledger.promote=kill_after")))
def test_killed_promotion_leaves_one_generation_in_charge(tmp_path: Path, fault: str) -> None:
    beside = Beside(tmp_path, "  - {kind: sql, table: seconds}")
    beside.fill()
    before = beside.sent()
    assert promote(beside, fault) == -signal.SIGKILL
    assert beside.in_charge == KILLED[fault]
    assert (len(beside.sent()) > len(before)) <= (beside.in_charge == 2)
    for stream in (beside.old.stream, beside.new.stream):
        let_the_lease_run_out(beside, stream)
    assert promote(beside, fault) == 0  # what has fired does not fire again
    assert (beside.in_charge, beside.sent()) == (2, before + NEW)


def promote(beside: Beside, fault: str) -> int:
    """The exit code of the command, in a process of its own."""
    armed = {"TIDEGATE_FAILPOINTS": fault, "TIDEGATE_FAILPOINTS_FIRED": str(beside.old.folder / "fired")}
    command = [sys.executable, "-c", "from tidegate.cli import main; main()", "generation", "promote"]
    environment = os.environ | beside.old.environment | armed
    return subprocess.run([*command, "visitors", "2"], env=environment, check=False, timeout=600).returncode


def let_the_lease_run_out(beside: Beside, stream: Stream) -> None:
    ledger = beside.old.app.ledger
    holder = ledger.lease_holder(stream)
    if holder is not None:
        ledger.acquire(stream, holder).release()
