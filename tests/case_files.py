"""Case files that several tests read: each is parsed once in a process, also while tests are collected."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tidegate.yaml.cases import Case, load_cases


@cache
def cases_in(path: Path) -> tuple[Case, ...]:
    """Return the cases of a file that no test changes."""
    return tuple(load_cases(path))
