"""Tables of commands, in terminals of all widths and without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import pytest

from tests.batch.committed import Committed
from tidegate.cli.output import show

pytestmark = pytest.mark.process

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def committed(tmp_path: Path) -> Committed:
    made = Committed(tmp_path, "  - {kind: table}", "sqlite://")
    made.environment["TIDEGATE_LEDGER"] = f"sqlite:///{tmp_path}/l.db"
    made.commit(1, {"second": [("a", 1), ("b", 2)]})
    return made


def in_terminal(columns: int, environment: dict[str, str], *arguments: str) -> list[str]:
    """Return the lines that the command shows in a terminal of so many columns, without colours."""
    # pytest's workers get the width of pytest's own terminal by COLUMNS, which goes before the one made here
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    pid, terminal = pty.fork()
    if pid == 0:
        program = str(Path(sys.executable).with_name("tidegate"))
        os.execve(program, [program, *arguments], {**inherited, **environment, "TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    shown = b""
    try:
        while part := os.read(terminal, 65536):
            shown += part
    except OSError:  # Linux's answer after the process has ended
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    return [_STYLE.sub("", line).rstrip() for line in shown.decode().splitlines()]


def test_wide_terminal_shows_one_line_per_row(committed: Committed) -> None:
    title, head, *rows = in_terminal(200, committed.environment, "emissions", "visitors")
    assert (title, head.split()[:3], len(rows)) == ("2 rows", ["seq", "key", "value"], 2)


def test_narrow_terminal_shows_a_block_per_row(committed: Committed) -> None:
    title, *lines = in_terminal(60, committed.environment, "emissions", "visitors")
    assert title == "2 rows"
    cells = [line.split(maxsplit=1) for line in lines]
    assert [cell[1] for cell in cells if cell[:1] == ["key"]] == ["a", "b"]
    assert [cell[1] for cell in cells if cell[:1] == ["value"]] == ['{"m": 1}', '{"m": 2}']
    assert all(line.split()[-1].endswith("Z") for line in lines if line.startswith("timestamp"))


def test_table_without_terminal_folds_no_instant(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"column_{number}" for number in range(12)]
    show([dict.fromkeys(names, "2026-01-31T10:30:00.000Z")] * 2, False)
    head, *rows = capsys.readouterr().out.splitlines()
    assert (head.split(), [row.split() for row in rows]) == (names, [["2026-01-31T10:30:00.000Z"] * 12] * 2)


def test_row_without_a_value_has_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"name": "a", "ratio": 0.5, "bound": 1}, {"name": "b", "bound": 2}], False)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "ratio", "bound"],
        ["a", "0.5", "1"],
        ["b", "-", "2"],
    ]
