"""What a program asked of the kernel, out of what `strace` wrote down."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CALLS = ("openat", "mkdir", "mkdirat", "fsync", "fdatasync")
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_UNFINISHED = " <unfinished ...>"
_FILE = re.compile(r"<([^<>]+)>")
_NAME = re.compile(r'"([^"]*)"')


@dataclass(frozen=True)
class Call:
    """A call that succeeded: the file that it is about, and the lines at which it begins and ends."""

    name: str
    path: str
    creates: bool
    begin: int
    end: int


def traced(command: Sequence[str], trace: Path) -> list[str] | None:
    """A command with all of its processes traced into a file; None: nothing can be traced here."""
    if shutil.which("strace") is None:
        return None
    prefix = ["strace", "--follow-forks", "--seccomp-bpf", "--decode-fds=path", "--string-limit=4096"]
    prefix += [f"--trace={','.join(CALLS)}", f"--output={trace}"]
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return [*prefix, *command] if probe.returncode == 0 else None


def calls(lines: Iterable[str]) -> Iterator[Call]:
    """The calls that succeeded, in the order in which they ended."""
    unfinished: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:
            continue
        process, resumed, name, text = match.groups()
        begin = number
        if resumed:
            begin, start = unfinished.pop(process, (number, ""))
            name, text = resumed, start + text
        elif text.endswith(_UNFINISHED):
            unfinished[process] = number, text.removesuffix(_UNFINISHED)
            continue
        arguments, _, result = text.rpartition(" = ")
        if name in CALLS and result[:1].isdigit():
            yield Call(name, _path(name, arguments, result), "O_CREAT" in arguments, begin, number)


def _path(name: str, arguments: str, result: str) -> str:
    """A file that is open by its descriptor, another by the name that was asked for."""
    match = (_FILE if not name.startswith("mkdir") else _NAME).search(
        result if name == "openat" else arguments
    )
    return match[1] if match is not None else ""
