"""Ports, and processes of which nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.errors import SetupFailed
from tidegate_dev import warden as warden_module
from tidegate_dev.processes import MARKER, Supervised, claim_port, free_port, sweep
from tidegate_dev.warden import living_below

# a family: a child that ignores SIGTERM, and a grandchild in a session of its own, as Airflow and Spark have
FAMILY = """
trap '' TERM
setsid sleep 300 & echo $! > "$0/grandchild"
echo $$ > "$0/child"
echo ready
while :; do sleep 0.1; done
"""
MEMBERS = ("child", "grandchild")


def family(folder: Path, grace_s: float = 0.2) -> Supervised:
    return Supervised("family", ["sh", "-c", FAMILY, str(folder)], folder / "log", os.environ, grace_s)


def members(folder: Path) -> list[int]:
    """Their processes, once all have started."""
    files = [folder / name for name in MEMBERS]
    wait_for(lambda: all(file.exists() and file.read_text().strip() for file in files))
    return [int(file.read_text()) for file in files]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if _state(pid) not in ("", "Z")]


def _state(pid: int) -> str:
    done = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()[:1]


def wait_for(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_nothing_is_left_after_stop(tmp_path: Path) -> None:
    with family(tmp_path) as process:
        pids = members(tmp_path)
        assert alive(pids) == pids
    assert not process.running
    assert not alive(pids)


def test_nothing_is_left_after_kill(tmp_path: Path) -> None:
    process = family(tmp_path, grace_s=60)
    process.start()
    pids = members(tmp_path)
    process.kill()
    assert not alive(pids)


def test_nothing_is_left_after_an_exception(tmp_path: Path) -> None:
    def fail() -> None:
        with family(tmp_path):
            members(tmp_path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not alive(members(tmp_path))


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        # a test run that was started in the background ignores Ctrl-C, and its children would as well
        "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from pathlib import Path; from tests.dev.test_processes import family;"
        f"process = family(Path({str(tmp_path)!r})); process.start(); time.sleep(300)"
    )
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=root, stderr=subprocess.DEVNULL)
    pids = members(tmp_path)
    parent.send_signal(number)
    parent.wait()
    wait_for(lambda: not alive(pids))


def test_nothing_is_left_when_the_parent_dies_early(tmp_path: Path) -> None:
    """The parent dies before it has read the command's process id."""
    with warden(tmp_path, os.getpid(), stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        pids = members(tmp_path)
        process.stdin.close()
        wait_for(lambda: not alive(pids))
        assert process.wait() == 256 - signal.SIGKILL  # the command ignores SIGTERM


def test_nothing_is_left_when_pipes_survive_the_parent(tmp_path: Path) -> None:
    """The parent dies before the warden starts, and a forked copy of the parent holds the pipes open."""
    with subprocess.Popen(["true"]) as parent:
        parent.wait()
    with warden(tmp_path, parent.pid, stdout=subprocess.DEVNULL) as process:
        pids = members(tmp_path)
        wait_for(lambda: not alive(pids))
        assert process.wait() == 256 - signal.SIGKILL


def warden(folder: Path, parent: int, stdout: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-I",
        "-S",
        warden_module.__file__,
        str(parent),
        "0.2",
        "sh",
        "-c",
        FAMILY,
        str(folder),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.DEVNULL)


@pytest.mark.skipif(sys.platform != "linux", reason="copies a program of Linux")
def test_process_with_any_name_is_found(tmp_path: Path) -> None:
    """Linux cuts a process's name after 15 bytes, also in the middle of a character."""
    program = shutil.copy("/bin/sleep", os.fsencode(tmp_path) + b"/" + b"a" * 14 + "é".encode())
    process = subprocess.Popen([program, "300"])
    try:
        wait_for(lambda: b"\xc3)" in Path(f"/proc/{process.pid}/stat").read_bytes())
        assert process.pid in living_below(os.getpid())
    finally:
        process.kill()
        process.wait()


def test_a_command_that_ends_takes_its_children_along(tmp_path: Path) -> None:
    program = "setsid sleep 300 & echo $! > $0/p"
    process = Supervised("short", ["sh", "-c", program, str(tmp_path)], tmp_path / "log", os.environ)
    process.start()
    wait_for(lambda: not process.running)
    assert not alive([int((tmp_path / "p").read_text())])


def test_a_command_that_heeds_sigterm_ends_at_once(tmp_path: Path) -> None:
    process = Supervised("sleeper", ["sleep", "300"], tmp_path / "log", os.environ, grace_s=60)
    process.start()
    began = time.monotonic()
    process.stop()
    assert time.monotonic() - began < 5


def test_failed_start_shows_the_log_end(tmp_path: Path) -> None:
    process = Supervised("it", ["sh", "-c", "echo first; echo why >&2; exit 3"], tmp_path / "log", os.environ)
    process.start()
    with pytest.raises(SetupFailed, match=r"(?s)it ended while it was starting:.*first.*why.*See .*log"):
        process.wait_ready(lambda: False, timeout_s=10)


def test_one_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    with family(tmp_path) as process:
        pids = members(tmp_path)
        with pytest.raises(SetupFailed, match="was not ready after 0 s"):
            process.wait_ready(lambda: False, timeout_s=0.1)
        assert not alive(pids)


def test_missing_program_is_an_error(tmp_path: Path) -> None:
    process = Supervised("it", [str(tmp_path / "no-program")], tmp_path / "log", os.environ)
    with pytest.raises(SetupFailed, match="it could not be started"):
        process.start()


def test_a_free_port_can_be_listened_on() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
        server.listen()


def test_taken_port_names_its_setting() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(SetupFailed, match=rf"Port {port} is taken.*THE_SETTING"):
            claim_port(port, "THE_SETTING")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_sweep_ends_only_what_a_crash_left(tmp_path: Path) -> None:
    own_process = subprocess.Popen(
        ["sleep", "300"], env={**os.environ, MARKER: str(tmp_path)}, start_new_session=True
    )
    other = subprocess.Popen(["sleep", "300"], env={**os.environ, MARKER: "else"}, start_new_session=True)
    try:
        wait_for(lambda: sweep(str(tmp_path)))  # between fork and exec it does not have its environment yet
        assert own_process.wait(60) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_who_asks_for_two_ports_gets_two() -> None:
    assert len({free_port() for _ in range(300)}) == 300
