"""A planted bug: an edit of one product file, and the tests that must fail under it.

A bug is a YAML file in `bugs/`:

    what: A batch of `run --until` uses the current time as its clock.
    file: include/tidegate/cli/commands/run.py
    replace: clock_ms=until_ms
    by: clock_ms=now_ms()
    tests: ["tests/cli/test_run.py::test_until_is_the_clock"]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "bugs"
COPIED = (
    "include",
    "tidegate-dev",
    "plugins",
    "spark_jobs",
    "dags",
    "tests",
    "benchmarks",
    "scripts",
    "docs",
    "pyproject.toml",
)
_FAILED = re.compile(r"^\d+ failed\b", re.MULTILINE)
"""The start of pytest's last line if a test failed."""


class BugUnusable(Exception):
    """The edit does not fit the code, or the tests fail without it."""


@dataclass(frozen=True)
class Bug:
    name: str
    what: str
    file: str
    replace: str
    by: str
    tests: tuple[str, ...]

    @classmethod
    def load(cls, path: Path) -> Bug:
        fields = yaml.safe_load(path.read_text())
        return cls(name=path.stem, **{**fields, "tests": tuple(fields["tests"])})

    def plant(self, checkout: Path) -> None:
        """Edit the file in `checkout`. Raises BugUnusable unless the text occurs exactly once."""
        path = checkout / self.file
        text = path.read_text()
        occurrences = text.count(self.replace)
        if occurrences != 1:
            raise BugUnusable(f"{self.name}: {self.file} has the text {occurrences} times, not once")
        path.write_text(text.replace(self.replace, self.by))

    def is_caught(self, checkout: Path) -> bool:
        """Return whether one of the tests fails in `checkout`.

        Raises BugUnusable if pytest ran none, or if what a test needs could not be set up: that is no catch.
        """
        ran = run_tests(checkout, self.tests)
        is_error = ran.returncode == 1 and _FAILED.search(ran.stdout) is None
        if is_error or ran.returncode not in (0, 1):
            raise BugUnusable(f"{self.name}: pytest ended with {ran.returncode}:\n{ran.stdout[-2000:]}")
        return ran.returncode == 1


def all_bugs() -> list[Bug]:
    """Return the bugs by name."""
    return [Bug.load(path) for path in sorted(FOLDER.glob("*.yaml"))]


def copy_checkout(target: Path) -> Path:
    """Copy what tests need of the checkout into `target`, and return it."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)
    return target


def run_tests(checkout: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run the tests in `checkout`, which comes before the installed checkout on Python's path.

    The broker's jars are those of the installed checkout.
    """
    path = os.pathsep.join(str(checkout / name) for name in (".", "include", "plugins", "tidegate-dev"))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "", *tests]
    return subprocess.run(
        command,
        cwd=checkout,
        env={"TIDEGATE_HOME": str(ROOT / ".tidegate")} | os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
