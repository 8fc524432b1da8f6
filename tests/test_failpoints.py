"""What a failpoint does to a process, and whether the effect that it stands around happens."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.processes import fork
from tidegate import failpoints
from tidegate.failpoints import FailpointRaised, ReplyLost, failpoint

RAISED, LOST = 31, 32


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> tuple[int | None, int]:
    """A process that meets a failpoint twice: how it ended, and how many of the effects happened."""
    effect = folder / "effect"
    effect.write_text("")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", f"here={action}")
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(folder / "fired"))

    def work() -> int:
        failpoints._hits.clear()
        try:
            for _ in range(2):
                with failpoint("here"), effect.open("a") as file:
                    file.write(".")
        except FailpointRaised:
            return RAISED
        except ReplyLost:
            return LOST
        return 0

    child = fork(work, folder / "log")
    try:
        return child.wait(), len(effect.read_text())
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("action", "end", "effects"),
    [
        ("kill", -signal.SIGKILL, 0),
        ("kill_after", -signal.SIGKILL, 1),
        ("raise", RAISED, 0),
        ("lose", LOST, 1),
        ("pause", None, 0),
        ("pause_after", None, 1),
        ("kill@2", -signal.SIGKILL, 1),
        ("kill_after@2", -signal.SIGKILL, 2),
        ("kill@3", 0, 2),
    ],
)
def test_an_action_comes_before_or_after_the_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, end: int | None, effects: int
) -> None:
    assert run(tmp_path, monkeypatch, action) == (end, effects)


def test_fired_failpoint_does_not_fire_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, "kill") == (-signal.SIGKILL, 0)
    assert (tmp_path / "fired").read_text().split() == ["here=kill"]
    assert run(tmp_path, monkeypatch, "kill") == (0, 2)
