"""Which files of a folder are pipelines.

It imports nothing else: shells run it to complete names while you type.
"""

from __future__ import annotations

from pathlib import Path

DEFAULTS_FILE = "defaults.yaml"
"""The only YAML file of the folder that is not a pipeline: see `yaml.load`."""
HOW_TO_BEGIN = "`tidegate init NAME` writes one; TIDEGATE_PIPELINES names another folder."
"""The hint for a user who has no pipelines yet."""


def pipeline_files(folder: Path) -> list[Path]:
    """Return the folder's pipeline files, sorted by name; an empty list if the folder does not exist.

    Example: `[path.stem for path in pipeline_files(Path("include/pipelines"))]`
    """
    return sorted(path for path in folder.glob("*.yaml") if path.name != DEFAULTS_FILE)
