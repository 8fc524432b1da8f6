"""What a person reads on a page."""

from __future__ import annotations

import html
import re


def visible_text(page: str) -> str:
    """Return the visible text of a page in one line."""
    body = re.sub(r"<(style|script|title)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())
