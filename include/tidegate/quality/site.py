"""Data Docs as a site that grows by a page per check: each check of a batch is a page that is written
once.

    index.html                                       the pipelines and their generations
    orders/g1/index.html                             its days, the newest first
    orders/g1/2026-01-31/index.html                  the checks of the day, the newest first
    orders/g1/2026-01-31/000000007.1.orders.1.passed.html    of batch 7, check 1, suite orders, try 1
    orders/g1/2026-01-31/000000007.1.orders.1.passed.json    the same results for programs

An index is made from the names of the files: no file is opened. The index of a day is written with each page,
the indexes above it only with the first page of a new day. If two processes write an index at once, it can
lack a page; the next page corrects it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date
from functools import lru_cache
from html import escape
from importlib.resources import files
from pathlib import Path

from pyarrow.fs import FileSelector, FileType

from tidegate.quality.audit import PagePlace
from tidegate.quality.suite import Severity
from tidegate.quality.verdict import Verdict
from tidegate.storage import Store
from tidegate.storage.store import store_errors

STYLE = "style.css"
CSP = """\
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self'; \
img-src data:; form-action 'none'; base-uri 'none'">"""
"""The policy of each page. It is in the page, since a bucket sends no headers."""
MOST_DAYS = 400
"""The number of days with checks that are kept per generation. Older days are removed when a new day
begins.
"""
FORMAT = 1
"""The format version of the files with results."""
_REQUESTS_AT_ONCE = 8


@dataclass(frozen=True, order=True)
class PageName:
    """The parts of the name of a page's file.

    Example::

        str(PageName(7, 1, "orders", 1, "passed"))  # "000000007.1.orders.1.passed"
    """

    seq: int
    number: int
    suite: str
    try_number: int
    outcome: str

    def __str__(self) -> str:
        return f"{self.seq:09d}.{self.number}.{self.suite}.{self.try_number}.{self.outcome}"

    @classmethod
    def parse(cls, stem: str) -> PageName | None:
        """Parse the text that `str` returns; None for the name of any other file."""
        # the name of a suite may contain dots, so it is what remains between the other parts
        parts = stem.split(".")
        if len(parts) < 5 or not (parts[0].isdigit() and parts[1].isdigit() and parts[-2].isdigit()):
            return None
        return cls(int(parts[0]), int(parts[1]), ".".join(parts[2:-2]), int(parts[-2]), parts[-1])


def outcome_of(verdict: Verdict) -> str:
    """Return the outcome of a check in one word: `stopped`, `warned`, `noted` or `passed`."""
    if verdict.stops:
        return "stopped"
    if not verdict.passed:
        return "warned"
    return "noted" if verdict.failed(Severity.INFO) else "passed"


def publish_page(place: PagePlace, suite: str, verdict: Verdict, page: str) -> str:
    """Write a page, its results, and the indexes that change. Return the page's path below the root.

    Args:
        place: The place of the check.
        suite: The suite's name.
        page: The page's HTML.

    Raises LakeUnavailable if the store does not answer.
    """
    store = Store(place.root)
    name = PageName(place.seq, place.number, suite, place.try_number, outcome_of(verdict))
    path = f"{place.folder}/{name}"
    is_new_day = not _exists(store, f"{place.folder}/index.html")
    # pages before indexes: an index never links to a page that does not exist
    _write(store, f"{path}.html", page)
    _write(store, f"{path}.json", results_text(place, suite, verdict))
    _write(store, f"{place.folder}/index.html", _day_index(store, place))
    if is_new_day:
        _write_indexes_above(store, place)
    return f"{path}.html"


def results_text(place: PagePlace, suite: str, verdict: Verdict) -> str:
    """Return a check's results as JSON, for programs."""
    body = {
        "format": FORMAT,
        "pipeline": place.pipeline,
        "generation": place.generation,
        "batch": place.seq,
        "check": place.number,
        "try": place.try_number,
        "day": place.day.isoformat(),
        "suite": suite,
        "title": verdict.title,
        "outcome": outcome_of(verdict),
        "expectations": [asdict(result) for result in verdict.expectations],
    }
    return json.dumps(body, ensure_ascii=False, indent=1) + "\n"


def remove_pages(
    root: str, pipeline: str, generation: int, is_removed: Callable[[PageName, str], bool]
) -> int:
    """Remove pages of a generation with their results, and write the indexes of their days anew. Return the
    number of pages.

    Args:
        root: as in `PagePlace`.
        pipeline: the pipeline.
        generation: its generation.
        is_removed: gets the name of a page, and the text of the page or of its results.

    Raises LakeUnavailable if the store does not answer.
    """
    store, removed = Store(root), 0
    for day in _folders(store, f"{pipeline}/g{generation}"):
        place = PagePlace(root, pipeline, generation, date.fromisoformat(day), 0, 0, 0)
        names = {PageName.parse(name.rpartition(".")[0]) for name in _entries(store, place.folder)}
        removable = [
            page for page in names if page is not None and _is_removed(store, place, page, is_removed)
        ]
        for page in removable:
            # Results first: a page that a killed process leaves is found again by its number.
            for suffix in (".json", ".html"):
                store.delete(f"{place.folder}/{page}{suffix}")
        if removable:
            _write(store, f"{place.folder}/index.html", _day_index(store, place))
        removed += len(removable)
    return removed


def _is_removed(
    store: Store, place: PagePlace, page: PageName, is_removed: Callable[[PageName, str], bool]
) -> bool:
    paths = [
        path for suffix in (".json", ".html") if _exists(store, path := f"{place.folder}/{page}{suffix}")
    ]
    return any(is_removed(page, store.read(path).decode()) for path in paths)


def _day_index(store: Store, place: PagePlace) -> str:
    names = (PageName.parse(name.removesuffix(".html")) for name in _names(store, place.folder, ".html"))
    pages = sorted((name for name in names if name is not None), reverse=True)
    rows = [
        (
            f'<td><a href="{escape(str(page))}.html">batch {page.seq}</a></td>'
            f"<td>{page.number}</td><td>{escape(page.suite)}</td><td>{page.try_number}</td>"
            f'<td class="{escape(page.outcome)}">{escape(page.outcome)}</td>'
        )
        for page in pages
    ]
    title = f"{place.pipeline}, generation {place.generation}, {place.day.isoformat()}"
    return _index(title, ("", "check", "suite", "try", "outcome"), rows, depth=3)


def _write_indexes_above(store: Store, place: PagePlace) -> None:
    generation = f"{place.pipeline}/g{place.generation}"
    # Folders are named by ISO dates, whose order as texts is that of time.
    days = sorted(_folders(store, generation), reverse=True)
    for day in days[MOST_DAYS:]:
        _remove(store, f"{generation}/{day}")
    days = days[:MOST_DAYS]
    title = f"{place.pipeline}, generation {place.generation}"
    _write(store, f"{generation}/index.html", _index(title, ("day",), map(_link, days), depth=2))
    if not _exists(store, f"static/{STYLE}"):
        _write(store, f"static/{STYLE}", style())
    # the index of all pipelines changes only when a generation gets its first day
    if len(days) > 1:
        return
    generations = [
        f"{pipeline}/{number}"
        for pipeline in _folders(store, "")
        if pipeline != "static"
        for number in _folders(store, pipeline)
    ]
    _write(store, "index.html", _index("Data Docs", ("pipeline",), map(_link, sorted(generations)), depth=0))


def _link(folder: str) -> str:
    return f'<td><a href="{escape(folder)}/index.html">{escape(folder)}</a></td>'


def _index(title: str, columns: Iterable[str], rows: Iterable[str], depth: int) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    above = "../../index.html" if depth == 2 else "../index.html"
    up = f'<p><a href="{above}">up</a></p>' if depth else ""
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">{CSP}<title>{escape(title)}</title>'
        f'<link rel="stylesheet" href="{"../" * depth}static/{STYLE}"></head>'
        f'<body class="index"><h1>{escape(title)}</h1>{up}'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></body></html>\n"
    )


_READABLE = re.compile(
    r"static/style\.css|[a-z][a-z0-9_]*/g[0-9]+/([0-9]{4}-[0-9]{2}-[0-9]{2}/)?[A-Za-z0-9][A-Za-z0-9_.-]*\.(html|json)"
)


def has_page(root: str, path: str) -> bool:
    """Return whether the site has a file, by its path below the root; False for a path that no page can have.

    Raises LakeUnavailable if the store does not answer.
    """
    # An allow list: `..`, absolute paths and other files of a shared bucket match nothing.
    return bool(_READABLE.fullmatch(path)) and _exists(Store(root), path)


def read_page(root: str, path: str) -> bytes | None:
    """Return a file of the site; None if there is none, see `has_page`.

    Raises LakeUnavailable if the store does not answer.
    """
    return Store(root).read(path) if has_page(root, path) else None


@lru_cache
def style() -> str:
    """Return the style sheet of all pages. It loads nothing from other hosts."""
    return files("tidegate.quality").joinpath(STYLE).read_text(encoding="utf-8")


def _write(store: Store, path: str, text: str) -> None:
    """Write a file completely or not at all. It may be lost if the machine loses power: no decision
    depends on it.
    """
    folder = None if store.is_remote else Path(store.file_system.base_path)
    with store_errors(path):
        if folder is None:
            with store.file_system.open_output_stream(path) as stream:
                stream.write(text.encode())
            return
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # readers must never see half a page; renaming a file in its folder is atomic
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)


def _remove(store: Store, folder: str) -> None:
    """Delete all files in a folder, one request per file: not every object store can delete several at
    once.
    """
    paths = [f"{folder}/{name}" for name in _entries(store, folder)]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        list(pool.map(store.delete, paths))  # the list raises the first error


def _exists(store: Store, path: str) -> bool:
    with store_errors(path):
        return bool(store.file_system.get_file_info(path).type == FileType.File)


def _names(store: Store, folder: str, suffix: str) -> list[str]:
    files = (name for name, type_ in _entries(store, folder).items() if type_ == FileType.File)
    return [name for name in files if name.endswith(suffix)]


def _folders(store: Store, folder: str) -> list[str]:
    return [name for name, type_ in _entries(store, folder).items() if type_ == FileType.Directory]


def _entries(store: Store, folder: str) -> Mapping[str, FileType]:
    with store_errors(folder):
        selector = FileSelector(folder, allow_not_found=True)
        return {info.base_name: info.type for info in store.file_system.get_file_info(selector)}
