"""The last good text of each pipeline file, beside what else tidegate writes, for whoever parses DAG files.

A file whose `schedule` is itself mistaken keeps the schedule that it had. Parsing reads no ledger, so `plan`
leaves the text in TIDEGATE_HOME. Where the DAG processor does not share that folder with the workers, nothing
is there: then such a file, and no other, has no schedule until it is corrected.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


def recall_text(home: Path, name: str) -> str:
    """The text that a batch of the file `name` was last planned with; empty where none is there."""
    try:
        return _path(home, name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def remember_text(home: Path, name: str, text: str) -> None:
    """Keep a text that a batch was planned with. A disk that refuses it stops no batch."""
    if recall_text(home, name) == text:
        return
    path = _path(home, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        log.warning("The text of %s cannot be kept for the DAG processor: %s", name, error)


def _path(home: Path, name: str) -> Path:
    return home / "last_good" / f"{name}.yaml"
