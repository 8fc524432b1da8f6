"""What mkdocs calls while it builds the documentation: it adds pages, and mends links that leave `docs/`.

The pages in `docs/` are read on a code host, too, where links lead to files of the repository. On the site
such a link leads to the page that the file has there, or, where it has none, becomes the file's path.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OTHER_PAGES = {"CHANGELOG.md": "changes.md", "benchmarks/README.md": "benchmarks.md"}
"""Files outside of `docs/` that are pages, too -> where."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(?<!`)(`+)(?!`)([^\n]+?)(?<!`)\1(?!`)")
"""A code span: in a table a pipe in it is escaped on code hosts, and here it is not."""
_log = logging.getLogger("mkdocs.hooks.site")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the decisions, of which the configuration names only the index."""
    folder = Path(config.docs_dir)
    decisions = [str(path.relative_to(folder)) for path in sorted(folder.glob("decisions/[0-9]*.md"))]
    assert config.nav is not None
    (section,) = (part for part in config.nav if "Decisions" in part)
    section["Decisions"] += decisions
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere."""
    for source, path in OTHER_PAGES.items():
        files.append(File.generated(config, path, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend the links of a page."""
    path = page.file.src_uri
    sources = {site: source for source, site in OTHER_PAGES.items()}
    return mended(markdown, path, sources.get(path, f"docs/{path}"))


def mended(markdown: str, path: str, source: str) -> str:
    """The text of the page at `path`, which comes from the file `source`, with links as the site has them."""

    def mend(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        site = OTHER_PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
        if site is not None:
            return f"[{text}]({posixpath.relpath(site, posixpath.dirname(path) or '.')}{anchor})"
        if not (ROOT / file).exists():
            _log.warning("%s: the link to %s leads to no file", source, target)
        return text if file in text else f"{text} (`{file}`)"

    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), _LINK.sub(mend, markdown))
