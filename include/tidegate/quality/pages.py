"""Data Docs as Great Expectations renders them, with its templates compiled once, and not in each process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from great_expectations.render.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import FileSystemBytecodeCache

_SECTIONS = ("expectations", "validations", "profiling")


class Page(DefaultJinjaPageView):  # type: ignore[misc]  # Great Expectations is not typed
    """A page of a suite or of a validation. Compiled templates are kept in the folder `compiled`."""

    def __init__(self, compiled: str, **options: Any) -> None:
        super().__init__(**options)
        self.env.bytecode_cache = FileSystemBytecodeCache(compiled)


class IndexPage(DefaultJinjaIndexPageView):  # type: ignore[misc]
    """The page that leads to all others. Compiled templates are kept in the folder `compiled`."""

    def __init__(self, compiled: str, **options: Any) -> None:
        super().__init__(**options)
        self.env.bytecode_cache = FileSystemBytecodeCache(compiled)


def site(docs: Path) -> dict[str, Any]:
    """The configuration of Data Docs in the folder `docs`. Compiled templates are kept beside it."""
    compiled = docs.parent / ".templates"
    compiled.mkdir(parents=True, exist_ok=True)
    return {
        "class_name": "SiteBuilder",
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": _view(IndexPage, compiled)},
        "site_section_builders": {name: {"view": _view(Page, compiled)} for name in _SECTIONS},
    }


def _view(kind: type, compiled: Path) -> dict[str, str]:
    return {"module_name": kind.__module__, "class_name": kind.__name__, "compiled": str(compiled)}
