"""Write files for a user, of which none may exist before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tidegate.errors import SettingsInvalid


def require_new(files: Iterable[Path], fix: str) -> None:
    """Raise SettingsInvalid if one of the files exists. `fix` says what the user can do then."""
    existing = [str(file) for file in files if file.exists()]
    if existing:
        raise SettingsInvalid(f"{', '.join(existing)} already exists", fix)


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write a text into each file, and make the folders that are missing."""
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
