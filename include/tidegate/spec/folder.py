"""Which files of a folder are pipelines. Nothing is imported for it: shells ask while a name is typed."""

from __future__ import annotations

from pathlib import Path

DEFAULTS_FILE = "defaults.yaml"
"""The one YAML file of the folder that is no pipeline; see `spec.defaults`."""
HOW_TO_BEGIN = "`tidegate init NAME` writes one; TIDEGATE_PIPELINES names another folder."
"""What whoever has none is told."""


def pipeline_files(folder: Path) -> list[Path]:
    """The folder's pipeline files, by name; none where there is no such folder."""
    return sorted(path for path in folder.glob("*.yaml") if path.name != DEFAULTS_FILE)
