"""The wheel, as `make dist` builds it, and environments that it is installed into."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.conftest import REPOSITORY

_SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "Makefile")
_FOLDERS = ("dags", "include", "plugins", "spark_jobs", "tidegate-dev")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
UV = Path(sys.executable).with_name("uv")


class Built(NamedTuple):
    """The files of `make dist`."""

    wheel: Path
    source: Path
    dev_wheel: Path


def build(folder: Path) -> Built:
    """Build the distributions of this checkout from a copy, by the commands of the Makefile.

    The wheel is built from what is in the source distribution.
    """
    copy = folder / "copy"
    for name in _FOLDERS:
        shutil.copytree(REPOSITORY / name, copy / name, ignore=_NOT_COPIED)
    for name in _SOURCES:
        shutil.copy(REPOSITORY / name, copy / name)
    makefile = (REPOSITORY / "Makefile").read_text()
    for command in re.findall(r"^\t@\$\(VENV\)/(uv build .*)$", makefile, re.MULTILINE):
        arguments = command.replace("$(VENV)/python", sys.executable).split()[1:]
        run(folder, [UV, *arguments], copy)
    dist = copy / "dist"
    (wheel,), (dev_wheel,) = dist.glob("tidegate-*.whl"), dist.glob("tidegate_dev-*.whl")
    return Built(wheel, next(dist.glob("*.tar.gz")), dev_wheel)


def run(log_folder: Path, command: list[str | Path], cwd: Path | None = None, **more: str) -> str:
    """Return what a command prints. Raises AssertionError with the output if it fails."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE", "PYTHON"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd or log_folder,
        env=inherited | more,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _locked() -> list[tuple[str, str]]:
    """Name and line of every package in the lock, without its hashes."""
    text = (REPOSITORY / "requirements.lock").read_text()
    return [(line.partition("==")[0], line) for line in re.findall(r"^[\w.-]+==[^\\\n]+", text, re.MULTILINE)]


class Environment:
    """A virtual environment of its own, into which uv installs in the versions of the lock."""

    def __init__(self, folder: Path, cache: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self._cache = cache
        run(folder.parent, [python, "-m", "venv", "--without-pip", folder])

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, *requirements: str, but: tuple[str, ...] = ()) -> None:
        """Install, with the lock, `but` for some packages, as constraints, which Airflow has, too."""
        constraints = self.folder / "constraints.txt"
        constraints.write_text("\n".join(line for name, line in _locked() if name not in but))
        into: list[str | Path] = ["--python", self.python, "-c", constraints]
        command = [UV, "pip", "install", "--quiet", *into, *requirements]
        run(self.folder, command, UV_CACHE_DIR=str(self._cache))

    def compile(self) -> None:
        """Byte-compile all that is installed, as setup does: a fresh Airflow starts much sooner then."""
        run(self.folder, [self.python, "-m", "compileall", "-q", "-j", "0", self.folder / "lib"])

    def versions(self) -> dict[str, str]:
        """Package -> version, of all that is installed."""
        listed = run(
            self.folder, [UV, "pip", "freeze", "--python", self.python], UV_CACHE_DIR=str(self._cache)
        )
        return dict(line.split("==") for line in listed.splitlines() if "==" in line)

    def run(self, program: str, *arguments: str | Path, **more: str) -> str:
        """Return what a program of the environment prints."""
        return run(self.folder, [self.folder / "bin" / program, *arguments], **more)
