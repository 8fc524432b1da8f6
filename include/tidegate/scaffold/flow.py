"""Values as YAML in one line, as a person writes them: quoted only where YAML needs it."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"(?!(?:true|false|null)$)[a-z_][a-z0-9_-]*", re.IGNORECASE | re.ASCII)


def flow(value: Any) -> str:
    """Return a JSON value as YAML's flow style.

    >>> flow({"storeId": "s1", "tags": ["a", "b"], "n": 1})
    '{storeId: s1, tags: [a, b], n: 1}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(name)}: {flow(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and "'" not in value and '"' in value and value.isprintable():
        return f"'{value}'"
    # Without these checks YAML would read `true`, `null` or `1` as something else than the text.
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    return value if is_plain else json.dumps(value, ensure_ascii=False)
