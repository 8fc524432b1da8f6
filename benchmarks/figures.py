"""Numbers over repeats, and how they are shown."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from tidegate.cli.output import table

_console = Console(width=None if sys.stdout.isatty() else 140)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Smallest, median and largest."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def spread_text(values: Sequence[float], digits: int = 1) -> str:
    """`min / median / max`, with thousands separated; a single number when there was one run."""
    numbers = spread(values).values() if len(values) > 1 else values
    return " / ".join(f"{number:,.{digits}f}" for number in numbers)


def mib(size_bytes: float) -> float:
    return size_bytes / 2**20


def show_table(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Rows as a table, with a line of space before it."""
    _console.print()
    _console.print(table(rows, title))


def show_json(result: Mapping[str, Any]) -> None:
    print(json.dumps(result, indent=2))


def machine() -> str:
    """Describe the machine on which the figures were measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB, Python {platform.python_version()}"


def teller() -> Callable[[str], None]:
    """Says on stderr what is being done, with the seconds since the start."""
    began = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - began:6.1f} s] {text}", file=sys.stderr, flush=True)
