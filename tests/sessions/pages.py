"""The page that Spark has of itself while it runs, and what it answers to programs, saved as files."""

from __future__ import annotations

import json
import re
from collections import deque
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

_MOST_PAGES = 150
_LINK = re.compile(r"""href=["']([^"'#]+)["']""")
_LEFT_OUT = re.compile(
    r"/static/|/kill|threadDump|thread-dump|heapHistogram|\.(?:css|js|svg|png)(?:$|\?)|[?&]\w+\.sort="
)
ANSWERS = (
    *("environment", "jobs", "stages?details=true&withSummaries=true", "allexecutors", "storage/rdd"),
    "sql?details=true&planDescription=true&length=1000",
)


def save(base: str, folder: Path) -> None:
    """Save all pages that can be reached from the first one, and all answers, each in a file."""
    folder.mkdir(parents=True)
    (application,) = json.loads(_read(f"{base}/api/v1/applications"))
    for number, answer in enumerate(ANSWERS):
        text = _read(f"{base}/api/v1/applications/{application['id']}/{answer}")
        (folder / f"answer-{number}-{answer.partition('?')[0].replace('/', '-')}.json").write_text(text)
    waiting, seen = deque([f"{base}/"]), {f"{base}/"}
    while waiting and len(seen) < _MOST_PAGES:
        page = waiting.popleft()
        text = _read(page)
        name = re.sub(r"\W+", "-", page.removeprefix(base)).strip("-") or "first"
        (folder / f"page-{name}.html").write_text(f"{page}\n{text}")
        for link in map(str, _LINK.findall(text)):
            target = urljoin(page, link.replace("&amp;", "&"))
            of_page = urlsplit(target).netloc == urlsplit(base).netloc and not _LEFT_OUT.search(target)
            if of_page and target not in seen:
                seen.add(target)
                waiting.append(target)


def _read(url: str) -> str:
    try:
        with urlopen(url, timeout=600) as answer:
            content: Any = answer.read()
    except HTTPError as error:
        content = error.read()
    return str(content.decode(errors="replace"))
