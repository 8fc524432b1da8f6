"""The command `run`: one batch, whose quality check starts its imports before everything else."""

from __future__ import annotations

import gc
import re
from pathlib import Path

from tidegate.cli.options import RunOptions
from tidegate.quality import CheckBeside
from tidegate.settings import Settings
from tidegate.spec.folder import DEFAULTS_FILE

_HAS_SUITE = re.compile(rb"^quality:", re.MULTILINE)


def run(pipeline: str, options: RunOptions, as_json: bool) -> None:
    """Run one batch of PIPELINE, all five steps, without Airflow. Raises what the steps raise."""
    with CheckBeside() as quality:
        if _seems_to_have_suite(pipeline):
            quality.start()

        gc.disable()  # modules are never garbage, and searching them for it takes time
        from tidegate.cli import batches  # late: this takes as long as the rest of a small batch

        gc.enable()
        batches.run(pipeline, options, as_json, quality)


def _seems_to_have_suite(pipeline: str) -> bool:
    """Return whether the text of the files contains `quality:`.

    If the guess is wrong, the check only starts later, or for nothing.
    """
    folder = Settings.from_environment().pipelines
    files = (Path(pipeline), folder / f"{pipeline}.yaml", folder / DEFAULTS_FILE)
    return any(_HAS_SUITE.search(file.read_bytes()) for file in files if file.is_file())
