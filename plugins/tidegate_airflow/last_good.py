"""Store the last valid text of each pipeline file in TIDEGATE_HOME, for the DAG processor.

A file with a mistake in its `schedule` keeps its last valid schedule. Parsing must not read the ledger, so
`plan` stores the text. If the DAG processor does not share the folder with the workers, the text is missing:
then such a file has no schedule until it is corrected.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


def recall_text(home: Path, name: str) -> str:
    """Return the text with which a batch of the file `name` was last planned; empty if none is stored.

    Args:
        home: TIDEGATE_HOME.
        name: The name of the pipeline file, without `.yaml`.
    """
    try:
        return _path(home, name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def remember_text(home: Path, name: str, text: str) -> None:
    """Store a text with which a batch was planned. If the disk refuses it, it logs a warning, and the batch
    continues.

    Args:
        home: TIDEGATE_HOME.
        name: The name of the pipeline file, without `.yaml`.
        text: The text of the file.
    """
    # Each batch calls this, and the text seldom changes: a read is cheaper than a write.
    if recall_text(home, name) == text:
        return
    path = _path(home, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # By process id: two runs of a file may write at the same time.
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)  # atomic, so that the DAG processor never reads half of it
    except OSError as error:
        log.warning("The text of %s cannot be kept for the DAG processor: %s", name, error)


def _path(home: Path, name: str) -> Path:
    return home / "last_good" / f"{name}.yaml"
