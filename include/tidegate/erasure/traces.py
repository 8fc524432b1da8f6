"""What is left of erased keys beside the files of a stream: Data Docs, and texts in the ledger."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from html import escape, unescape

from tidegate.app.root import App
from tidegate.erasure.keys import ErasedKeys
from tidegate.failpoints import failpoint
from tidegate.ledger import Stream
from tidegate.quality.site import PageName, remove_pages

ERASED_TEXT = "(erased)"
"""What a text of the ledger has in place of an erased key."""
_TEXTS_AT_ONCE = 200
"""The alternatives in one regular expression."""


def redaction(keys: ErasedKeys) -> Callable[[str], str]:
    """Return a function that replaces each whole occurrence of a key in a text.

    A key that is a part of a longer word or number stays: `7` is not in `17`.
    """
    patterns = _patterns(keys)

    def redacted(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(ERASED_TEXT, text)
        return text

    return redacted


def _patterns(keys: ErasedKeys) -> list[re.Pattern[str]]:
    forms = sorted({form for text in keys.texts for form in _forms(text)}, key=len, reverse=True)
    parts = [forms[at : at + _TEXTS_AT_ONCE] for at in range(0, len(forms), _TEXTS_AT_ONCE)]
    return [re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, part))})(?!\w)") for part in parts]


def _forms(text: str) -> set[str]:
    """Return a key as texts quote it: as it is, as a JSON text, as Python's repr, and as HTML."""
    quoted = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    return quoted | {escape(form) for form in quoted}


def remove_docs(app: App, stream: Stream, keys: ErasedKeys, batches: Collection[int]) -> int:
    """Remove the pages of Data Docs of batches that had rows of the keys, and others that show a key.

    Return the number of pages. Raises LakeUnavailable.
    """
    patterns, affected = _patterns(keys), frozenset(batches)

    def is_removed(page: PageName, text: str) -> bool:
        return page.seq in affected or any(
            pattern.search(shown) for shown in (text, unescape(text)) for pattern in patterns
        )

    with failpoint("erase.docs"):
        return remove_pages(app.settings.data_docs, stream.pipeline, stream.generation, is_removed)
